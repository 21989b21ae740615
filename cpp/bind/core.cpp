// The Python module windtunnel.engine._core: columns in, columns out. The only file that sees Python headers.
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "bind/columns.h"
#include "bind/network.h"
#include "bind/parts.h"
#include "exec/engine.h"
#include "exec/interleave.h"
#include "net/chain.h"
#include "net/closed/closed.h"

using namespace wt::bind;

namespace {

nb::dict run(const Column<std::int64_t>& template_start, const Column<std::int32_t>& op_stream, const Column<double>& op_seconds,
             const Column<double>& op_host, const Column<std::int32_t>& op_category, const Column<std::uint8_t>& op_comm,
             const Column<std::uint8_t>& op_sync, const Column<std::int32_t>& op_wait0, const Column<std::int32_t>& op_wait1,
             const Column<std::int64_t>& rank_start, const Column<std::int32_t>& tmpl, const Column<std::int32_t>& times,
             const Column<std::uint8_t>& flags, const Column<std::int64_t>& wait_start, const Column<std::int32_t>& waits,
             const Column<std::int32_t>& rv_stream, const Column<double>& rv_host, const Column<std::int32_t>& rv_cat_wait,
             const Column<std::int32_t>& rv_cat_transfer, const Column<std::int64_t>& part_start,
             const Column<std::int64_t>& part_key, const Column<double>& part_seconds,
             const Column<std::int32_t>& part_participants, const Column<std::uint8_t>& record,
             const Column<std::int32_t>& op_group, const Column<std::int32_t>& scale, const Column<double>& scales,
             std::int32_t groups, const Column<std::int32_t>& op_live, std::int64_t live_key, std::int64_t live_calls,
             std::int32_t categories, double compute_tax, std::int64_t host_window, bool critical_path,
             const Column<std::int64_t>& follow_key, const Column<std::int64_t>& follow_next, const Column<double>& taxes,
             bool outcomes, double grid, wt::net::Network* network) {
  using namespace wt::exec;
  const Program program{
      Templates{span_of(template_start), span_of(op_stream), span_of(op_seconds), span_of(op_host), span_of(op_category),
                span_of(op_comm), span_of(op_sync), span_of(op_wait0), span_of(op_wait1), span_of(op_group), span_of(op_live)},
      Instances{span_of(rank_start), span_of(tmpl), span_of(times), span_of(flags), span_of(wait_start), span_of(waits),
                span_of(scale)},
      Rendezvous{span_of(rv_stream), span_of(rv_host), span_of(rv_cat_wait), span_of(rv_cat_transfer), span_of(part_start),
                 span_of(part_key), span_of(part_seconds), span_of(part_participants)},
      Options{categories, compute_tax, host_window, critical_path, span_of(record), live_key, live_calls, span_of(taxes), outcomes,
              grid},
      Scales{span_of(scales), groups},
  };
  Timeline out;
  {
    const nb::gil_scoped_release released;
    wt::net::Closed closed;
    wt::net::Network& given = network != nullptr ? *network : closed;
    wt::net::Chain chain(given, span_of(follow_key), span_of(follow_next));
    out = wt::exec::run(program, follow_key.size() > 0 ? static_cast<wt::net::Network&>(chain) : given);
  }
  const std::size_t ranks = out.rank_end.size();
  const auto streams = static_cast<std::size_t>(out.streams);
  const auto kinds = static_cast<std::size_t>(categories);
  nb::dict answer;
  answer["makespan"] = out.makespan;
  answer["ops"] = out.ops;
  answer["recalled"] = out.recalled;
  answer["outcome"] = array_of(std::move(out.outcome));
  answer["begin"] = array_of(std::move(out.begin));
  answer["end"] = array_of(std::move(out.end));
  answer["transfer_begin"] = array_of(std::move(out.transfer));
  answer["host_begin"] = array_of(std::move(out.host));
  answer["busy"] = array_of(std::move(out.busy), {ranks, streams, kinds});
  answer["idle"] = array_of(std::move(out.idle), {ranks, kinds + 2});
  answer["stretch"] = array_of(std::move(out.stretch), {ranks, kinds});
  answer["rank_end"] = array_of(std::move(out.rank_end));
  answer["host_end"] = array_of(std::move(out.host_end));
  answer["path_rank"] = array_of(std::move(out.path.rank));
  answer["path_instance"] = array_of(std::move(out.path.instance));
  answer["path_op"] = array_of(std::move(out.path.op));
  answer["path_kind"] = array_of(std::move(out.path.kind));
  answer["path_cause"] = array_of(std::move(out.path.cause));
  answer["path_seconds"] = array_of(std::move(out.path.seconds));
  answer["record_start"] = array_of(std::move(out.record.start));
  answer["record_end"] = array_of(std::move(out.record.end));
  return answer;
}

nb::tuple interleave(const Column<std::int32_t>& stream, const Column<double>& seconds, const Column<std::int32_t>& waits,
                     const Column<std::int32_t>& other_stream, const Column<double>& other_seconds,
                     const Column<std::int32_t>& other_waits, std::int32_t last) {
  auto out = wt::exec::interleave({wt::exec::Sequence{span_of(stream), span_of(seconds), span_of(waits)},
                                   wt::exec::Sequence{span_of(other_stream), span_of(other_seconds), span_of(other_waits)}},
                                  last);
  return nb::make_tuple(array_of(std::move(out.sequence)), array_of(std::move(out.row)), array_of(std::move(out.waits)));
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "windtunnel's C++ core; use windtunnel.engine instead.";
  nb::set_leak_warnings(false);  // servers that an interpreter still holds when it ends keep costs of passes: no fault
  nb::exception<wt::Error>(m, "CoreError");
  using nb::literals::operator""_a;
  nb::class_<wt::net::Network>(m, "Network",
                               "What a program's transfers run over; made by a network engine, and used up by one run.");
  m.def("run", &run, nb::kw_only(), column("template_start"), column("op_stream"), column("op_seconds"), column("op_host"),
        column("op_category"), column("op_comm"), column("op_sync"), column("op_wait0"), column("op_wait1"), column("rank_start"),
        column("template"), column("times"), column("flags"), column("wait_start"), column("waits"), column("rv_stream"),
        column("rv_host"), column("rv_cat_wait"), column("rv_cat_transfer"), column("part_start"), column("part_key"),
        column("part_seconds"), column("part_participants"), column("record"), column("op_group"), column("scale"),
        column("scales"), "groups"_a, column("op_live"), "live_key"_a, "live_calls"_a, "categories"_a, "compute_tax"_a,
        "host_window"_a, "critical_path"_a, column("follow_key"), column("follow_next"), column("taxes"), "outcomes"_a, "grid"_a,
        "network"_a.none() = nb::none(), "Executes a program given as columns; see windtunnel.engine.program.Program.");
  m.def("interleave", &interleave, nb::kw_only(), column("stream"), column("seconds"), column("waits"), column("other_stream"),
        column("other_seconds"), column("other_waits"), "last"_a,
        "Two sequences of operators as one; see windtunnel.engine.turns.");
  bind_control(m);
  bind_dag(m);
  bind_fabric(m);
  bind_faults(m);
  bind_flow(m);
  bind_packet(m);
  bind_serve(m);
  bind_steady(m);
  bind_trace(m);
  bind_turns(m);
}
