// Graphs and routes, for Python.
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "bind/columns.h"
#include "bind/graph.h"
#include "bind/parts.h"
#include "fabric/router.h"
#include "fabric/spread.h"
#include "net/closed/share.h"

namespace wt::bind {

namespace {

nb::tuple route(const nb::dict& graph, const Column<std::int32_t>& src, const Column<std::int32_t>& dst,
                const Column<std::uint64_t>& key, int policy, int nic, std::uint64_t seed) {
  const GraphColumns columns(graph);
  const fabric::Graph view = columns.view();
  if (src.size() != dst.size() || src.size() != key.size()) {
    fail("route: ", src.size(), " sources, ", dst.size(), " destinations, ", key.size(), " keys");
  }
  std::vector<std::int64_t> start{0};
  std::vector<std::int32_t> links;
  {
    const nb::gil_scoped_release released;
    fabric::Router router(view,
                          fabric::RouteOptions{static_cast<fabric::Policy>(policy), static_cast<fabric::NicChoice>(nic), seed});
    start.reserve(src.size() + 1);
    for (std::size_t f = 0; f < src.size(); ++f) {
      router.path(src.data()[f], dst.data()[f], key.data()[f], links);
      start.push_back(static_cast<std::int64_t>(links.size()));
    }
    links.shrink_to_fit();
  }
  return nb::make_tuple(array_of(std::move(start)), array_of(std::move(links)));
}

nb::ndarray<nb::numpy, double> spread(const nb::dict& graph, const Column<std::int32_t>& src, const Column<std::int32_t>& dst,
                                      const Column<std::uint64_t>& key, const Column<double>& weight, int policy, int nic,
                                      std::uint64_t seed) {
  const GraphColumns columns(graph);
  const fabric::Graph view = columns.view();
  if (src.size() != dst.size() || src.size() != key.size() || src.size() != weight.size()) {
    fail("spread: ", src.size(), " sources, ", dst.size(), " destinations, ", key.size(), " keys, ", weight.size(), " weights");
  }
  const fabric::RouteOptions options{static_cast<fabric::Policy>(policy), static_cast<fabric::NicChoice>(nic), seed};
  std::vector<double> load;
  {
    const nb::gil_scoped_release released;
    load = fabric::spread(view, options, span_of(src), span_of(dst), span_of(key), span_of(weight));
  }
  return array_of(std::move(load));
}

nb::ndarray<nb::numpy, double> closed_flows(const nb::dict& graph, const Column<std::int64_t>& start,
                                            const Column<std::int32_t>& links, const Column<double>& bytes,
                                            const Column<double>& begin) {
  const GraphColumns columns(graph);
  const fabric::Graph view = columns.view();
  std::vector<double> seconds;
  {
    const nb::gil_scoped_release released;
    fabric::validate(view);
    seconds = net::share(view, net::Paths{span_of(start), span_of(links)}, span_of(bytes), span_of(begin));
  }
  return array_of(std::move(seconds));
}

void check(const nb::dict& graph) { fabric::validate(GraphColumns(graph).view()); }

}  // namespace

void bind_fabric(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("route", &route, nb::kw_only(), "graph"_a, column("src"), column("dst"), column("key"), "policy"_a, "nic"_a, "seed"_a,
        "Links of each flow's path; see windtunnel.engine.routes.route.");
  m.def("spread", &spread, nb::kw_only(), "graph"_a, column("src"), column("dst"), column("key"), column("weight"), "policy"_a,
        "nic"_a, "seed"_a, "Load of each link if switches split evenly; see windtunnel.engine.routes.spread.");
  m.def("closed_flows", &closed_flows, nb::kw_only(), "graph"_a, column("start"), column("links"), column("bytes"), column("begin"),
        "Seconds of each flow by formula; see windtunnel.network.closed_flows.");
  m.def("check_graph", &check, "graph"_a, "Throws if a column of the graph is wrong.");
}

}  // namespace wt::bind
