// Where a program repeats and a run of it is steady: columns in, columns out.
#include "exec/steady.h"

#include <cstdint>
#include <vector>

#include "bind/columns.h"
#include "bind/parts.h"

namespace wt::bind {
namespace {

using namespace wt::exec;

nb::ndarray<nb::numpy, std::int64_t> find(const Column<std::int64_t>& rank_start, const Column<std::int32_t>& tmpl,
                                          const Column<std::int32_t>& times, const Column<std::uint8_t>& flags,
                                          const Column<std::int64_t>& wait_start, const Column<std::int32_t>& waits,
                                          const Column<std::int32_t>& rv_stream, const Column<double>& rv_host,
                                          const Column<std::int32_t>& rv_cat_wait, const Column<std::int32_t>& rv_cat_transfer,
                                          const Column<std::int64_t>& part_start, const Column<std::int64_t>& part_key,
                                          const Column<double>& part_seconds, const Column<std::int32_t>& part_participants,
                                          const Column<std::uint8_t>& passes, const Column<std::int32_t>& kind,
                                          const Column<std::int32_t>& number, std::int64_t step) {
  const Program program{
      .templates = {},
      .instances = {span_of(rank_start), span_of(tmpl), span_of(times), span_of(flags), span_of(wait_start), span_of(waits), {}},
      .rendezvous = {span_of(rv_stream), span_of(rv_host), span_of(rv_cat_wait), span_of(rv_cat_transfer), span_of(part_start),
                     span_of(part_key), span_of(part_seconds), span_of(part_participants)},
      .options = {}};
  std::vector<std::int64_t> out;
  for (const Periods& of : find_periods(program, {span_of(passes), span_of(kind), span_of(number), step}))
    out.insert(out.end(), {of.first, of.last, of.size});
  const std::size_t ranks = out.size() / 3;
  return array_of(std::move(out), {ranks, 3});
}

nb::object steady(const Column<std::int64_t>& template_start, const Column<std::uint8_t>& op_sync,
                  const Column<std::int64_t>& rank_start, const Column<std::int32_t>& tmpl, const Column<std::int32_t>& times,
                  const Column<std::uint8_t>& flags, const Column<std::int64_t>& periods, double makespan,
                  const Column<double>& begin, const Column<double>& end, const Column<double>& transfer,
                  const Column<double>& host, const Column<std::int32_t>& outcome, const Column<std::int64_t>& together,
                  double tolerance) {
  const Program program{.templates = {.start = span_of(template_start),
                                      .stream = {},
                                      .seconds = {},
                                      .host = {},
                                      .category = {},
                                      .comm = {},
                                      .sync = span_of(op_sync),
                                      .wait0 = {},
                                      .wait1 = {},
                                      .group = {},
                                      .live = {}},
                        .instances = {span_of(rank_start), span_of(tmpl), span_of(times), span_of(flags), {}, {}, {}},
                        .rendezvous = {},
                        .options = {}};
  std::vector<Periods> of;
  for (std::size_t at = 0; at + 2 < periods.size(); at += 3)
    of.push_back({periods.data()[at], periods.data()[at + 1], periods.data()[at + 2]});
  const auto found =
      find_steady(program, of, {makespan, span_of(begin), span_of(end), span_of(transfer), span_of(host), span_of(outcome)},
                  span_of(together), tolerance);
  return found ? nb::object(nb::make_tuple(found->together, found->seconds)) : nb::object(nb::none());
}

}  // namespace

void bind_steady(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("find_periods", &find, nb::kw_only(), column("rank_start"), column("template"), column("times"), column("flags"),
        column("wait_start"), column("waits"), column("rv_stream"), column("rv_host"), column("rv_cat_wait"),
        column("rv_cat_transfer"), column("part_start"), column("part_key"), column("part_seconds"), column("part_participants"),
        column("passes"), column("kind"), column("number"), "step"_a,
        "[ranks, 3] first instance, last one + 1, and size of the periods in the middle of each rank; a size of 0: it has none.");
  m.def("find_steady", &steady, nb::kw_only(), column("template_start"), column("op_sync"), column("rank_start"),
        column("template"), column("times"), column("flags"), column("periods"), "makespan"_a, column("begin"), column("end"),
        column("transfer_begin"), column("host_begin"), column("outcome"), column("together"), "tolerance"_a,
        "How many periods repeat together, and their seconds; None where they do not.");
}

}  // namespace wt::bind
