// The scanner of traces, for Python.
#include <string_view>
#include <utility>

#include "base/check.h"
#include "bind/columns.h"
#include "bind/parts.h"
#include "trace/nest.h"
#include "trace/scanner.h"

namespace wt::bind {

namespace {

nb::list texts_from(const trace::Texts& texts, std::size_t first) {
  nb::list out;
  for (std::size_t i = first; i < texts.size(); ++i) out.append(nb::bytes(texts[i].data(), texts[i].size()));
  return out;
}

nb::object scan(trace::Scanner& scanner, const nb::bytes& text, std::size_t end) {
  const std::size_t places = scanner.places().size(), names = scanner.names().size(), inputs = scanner.inputs().size();
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
  answer["new_inputs"] = texts_from(scanner.inputs(), inputs);
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
  answer["sequence"] = array_of(std::move(out.sequence));
  answer["forward"] = array_of(std::move(out.forward));
  answer["inputs"] = array_of(std::move(out.inputs));
  answer["bytes"] = array_of(std::move(out.bytes));
  answer["noted"] = array_of(std::move(out.noted));
  answer["arguments_begin"] = array_of(std::move(out.arguments.begin));
  answer["arguments_end"] = array_of(std::move(out.arguments.end));
  answer["others_begin"] = array_of(std::move(out.others.begin));
  answer["others_end"] = array_of(std::move(out.others.end));
  return answer;
}

void check_events(const char* who, const Column<std::int32_t>& events, const Column<double>& begin, const Column<double>& seconds) {
  if (begin.size() != seconds.size()) fail(who, ": ", begin.size(), " begins, ", seconds.size(), " lengths");
  for (const auto event : span_of(events))
    if (event < 0 || static_cast<std::size_t>(event) >= begin.size()) fail(who, ": event ", event);
}

auto longer_first(const Column<std::int32_t>& events, const Column<double>& begin, const Column<double>& seconds) {
  check_events("longer_first", events, begin, seconds);
  std::vector<std::int32_t> out(span_of(events).begin(), span_of(events).end());
  trace::put_longer_first(out, span_of(begin), span_of(seconds));
  return array_of(std::move(out));
}

auto enclosing(const Column<std::int32_t>& events, const Column<std::int32_t>& lanes, const Column<double>& begin,
               const Column<double>& seconds) {
  check_events("enclosing", events, begin, seconds);
  if (events.size() != lanes.size()) fail("enclosing: ", events.size(), " events, ", lanes.size(), " lanes");
  for (const auto lane : span_of(lanes))
    if (lane < 0) fail("enclosing: lane ", lane);
  return array_of(trace::enclosing(span_of(events), span_of(lanes), span_of(begin), span_of(seconds)));
}

auto innermost(const Column<std::int32_t>& around, const Column<std::uint8_t>& marked) {
  if (around.size() != marked.size()) fail("innermost: ", around.size(), " events, ", marked.size(), " marks");
  for (std::size_t at = 0; at < around.size(); ++at)
    if (around.data()[at] >= static_cast<std::int64_t>(at)) fail("innermost: event ", at, " is in one that comes after it");
  return array_of(trace::innermost(span_of(around), span_of(marked)));
}

}  // namespace

void bind_trace(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<trace::Scanner>(m, "TraceScanner", "Events of a profiler's trace into columns; see windtunnel.engine.scan.")
      .def(nb::init<>())
      .def("scan", &scan, "text"_a, "end"_a, nb::sig("def scan(self, text: bytes, end: int) -> dict | None"),
           "The events in the first `end` bytes of the text; None where they hold anything out of the ordinary.");
  m.def("longer_first", &longer_first, column("events"), column("begin"), column("seconds"));
  m.def("enclosing", &enclosing, column("events"), column("lanes"), column("begin"), column("seconds"));
  m.def("innermost", &innermost, column("around"), column("marked"));
}

}  // namespace wt::bind
