// The scanner of traces, for Python.
#include <string_view>
#include <utility>

#include "bind/columns.h"
#include "bind/parts.h"
#include "trace/scanner.h"

namespace wt::bind {

namespace {

nb::list texts_from(const trace::Texts& texts, std::size_t first) {
  nb::list out;
  for (std::size_t i = first; i < texts.size(); ++i) out.append(nb::bytes(texts[i].data(), texts[i].size()));
  return out;
}

nb::object scan(trace::Scanner& scanner, const nb::bytes& text, std::size_t end) {
  const std::size_t places = scanner.places().size(), names = scanner.names().size();
  trace::Batch out;
  bool read = false;
  {
    const std::string_view all(text.c_str(), text.size());
    const nb::gil_scoped_release released;
    read = scanner.scan(all.substr(0, end), out);
  }
  if (!read) return nb::none();
  nb::dict answer;
  answer["events"] = out.events;
  answer["new_places"] = texts_from(scanner.places(), places);
  answer["new_names"] = texts_from(scanner.names(), names);
  answer["phases"] = texts_from(out.phases, 0);
  answer["counts"] = array_of(std::move(out.counts));
  answer["place"] = array_of(std::move(out.place));
  answer["name"] = array_of(std::move(out.name));
  answer["begin"] = array_of(std::move(out.begin));
  answer["duration"] = array_of(std::move(out.duration));
  answer["correlation"] = array_of(std::move(out.correlation));
  answer["external"] = array_of(std::move(out.external));
  answer["stream"] = array_of(std::move(out.stream));
  answer["device"] = array_of(std::move(out.device));
  answer["bytes"] = array_of(std::move(out.bytes));
  answer["noted"] = array_of(std::move(out.noted));
  answer["arguments_begin"] = array_of(std::move(out.arguments.begin));
  answer["arguments_end"] = array_of(std::move(out.arguments.end));
  answer["others_begin"] = array_of(std::move(out.others.begin));
  answer["others_end"] = array_of(std::move(out.others.end));
  return answer;
}

}  // namespace

void bind_trace(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<trace::Scanner>(m, "TraceScanner", "Events of a profiler's trace into columns; see windtunnel.engine.scan.")
      .def(nb::init<>())
      .def("scan", &scan, "text"_a, "end"_a, nb::sig("def scan(self, text: bytes, end: int) -> dict | None"),
           "The events in the first `end` bytes of the text; None where they hold anything out of the ordinary.");
}

}  // namespace wt::bind
