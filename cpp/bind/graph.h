// A graph's columns as Python hands them over: a dict of arrays, named as in fabric/graph.h. Keeps the arrays alive.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "bind/columns.h"
#include "fabric/graph.h"

namespace wt::bind {

class GraphColumns {
 public:
  explicit GraphColumns(const nb::dict& columns)
      : node_kind_(take<std::uint8_t>(columns, "node_kind")),
        node_site_(take<std::int32_t>(columns, "node_site")),
        link_from_(take<std::int32_t>(columns, "link_from")),
        link_to_(take<std::int32_t>(columns, "link_to")),
        link_rate_(take<double>(columns, "link_rate")),
        link_latency_(take<double>(columns, "link_latency")),
        link_axis_(take<std::int16_t>(columns, "link_axis")),
        link_up_(take<std::uint8_t>(columns, "link_up")),
        endpoint_(take<std::int32_t>(columns, "endpoint")),
        nic_start_(take<std::int64_t>(columns, "nic_start")),
        nics_(take<std::int32_t>(columns, "nics")),
        rail_(take<std::int32_t>(columns, "rail")) {}

  [[nodiscard]] fabric::Graph view() const {
    return {span_of(node_kind_), span_of(node_site_),    span_of(link_from_), span_of(link_to_),
            span_of(link_rate_), span_of(link_latency_), span_of(link_axis_), span_of(link_up_),
            span_of(endpoint_),  span_of(nic_start_),    span_of(nics_),      span_of(rail_)};
  }

 private:
  template <class T>
  static Column<T> take(const nb::dict& columns, const char* name) {
    if (!columns.contains(name)) fail("graph.", name, " is missing");
    Column<T> column;
    if (!nb::try_cast<Column<T>>(columns[name], column, false)) {
      fail("graph.", name, " must be a contiguous one-dimensional array of ", sizeof(T), "-byte ",
           std::is_floating_point_v<T> ? "floats"
           : std::is_signed_v<T>       ? "integers"
                                       : "unsigned integers");
    }
    return column;
  }

  Column<std::uint8_t> node_kind_;
  Column<std::int32_t> node_site_, link_from_, link_to_;
  Column<double> link_rate_, link_latency_;
  Column<std::int16_t> link_axis_;
  Column<std::uint8_t> link_up_;
  Column<std::int32_t> endpoint_;
  Column<std::int64_t> nic_start_;
  Column<std::int32_t> nics_, rail_;
};

}  // namespace wt::bind
