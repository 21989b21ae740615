// The task graph executor, for Python.
#include "dag/dag.h"

#include <cstdint>
#include <span>
#include <utility>

#include "bind/columns.h"
#include "bind/network.h"
#include "bind/parts.h"

namespace wt::bind {

namespace {

void check_signals() {
  const nb::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// A Python function as the model of meetings: it gets the posts as an array of its own and answers with one.
wt::dag::Model model_of(const nb::object& ask) {
  if (ask.is_none()) return {};
  return [ask](std::int32_t channel, std::int64_t number, std::span<const double> posted, std::span<double> end) {
    const nb::gil_scoped_acquire held;
    std::vector<double> copy(posted.begin(), posted.end());
    const auto ends = nb::cast<Column<double>>(ask(channel, number, array_of(std::move(copy))));
    if (ends.size() != end.size()) nb::raise_type_error("the model answers %zu ends for %zu participants", ends.size(), end.size());
    for (std::size_t s = 0; s < end.size(); ++s) end[s] = ends.data()[s];
  };
}

nb::dict dag_run(const Column<double>& seconds, const Column<double>& tail, const Column<std::int32_t>& lane,
                 const Column<std::int32_t>& release, const Column<std::int64_t>& priority, const Column<std::int64_t>& dep_start,
                 const Column<std::int64_t>& deps, const Column<std::int32_t>& channel, const Column<std::int32_t>& slot,
                 const Column<std::int64_t>& key, const Column<std::uint8_t>& lane_ordered, const Column<std::int32_t>& lane_width,
                 const Column<std::uint8_t>& channel_kind, const Column<std::int32_t>& channel_slots, const nb::object& model,
                 wt::net::Network* network) {
  const wt::dag::Tasks tasks{span_of(seconds),   span_of(tail), span_of(lane),    span_of(release), span_of(priority),
                             span_of(dep_start), span_of(deps), span_of(channel), span_of(slot),    span_of(key)};
  wt::dag::Outcome out;
  const wt::dag::Model asked = model_of(model);
  {
    const nb::gil_scoped_release released;
    out = wt::dag::run(tasks, {span_of(lane_ordered), span_of(lane_width)}, {span_of(channel_kind), span_of(channel_slots)},
                       network, asked, check_signals);
  }
  nb::dict answer;
  answer["start"] = array_of(std::move(out.start));
  answer["end"] = array_of(std::move(out.end));
  answer["begin"] = array_of(std::move(out.begin));
  answer["cause"] = array_of(std::move(out.cause));
  answer["last"] = array_of(std::move(out.last));
  answer["done"] = out.done;
  return answer;
}

}  // namespace

void bind_dag(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("dag_run", &dag_run, nb::kw_only(), column("seconds"), column("tail"), column("lane"), column("release"),
        column("priority"), column("dep_start"), column("deps"), column("channel"), column("slot"), column("key"),
        column("lane_ordered"), column("lane_width"), column("channel_kind"), column("channel_slots"),
        "model"_a.none() = nb::none(), "network"_a.none() = nb::none(),
        "Runs a graph of tasks on lanes; see windtunnel.engine.dag.run.");
}

}  // namespace wt::bind
