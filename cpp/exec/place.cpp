// The inner loop: gives the operators of one instance their times.
#include <algorithm>

#include "exec/engine.h"

namespace wt::exec {

// The end of an operator with the compute tax: later by what calls in flight take from it. Its own flight is noted.
template <bool Learn>
[[gnu::always_inline]] inline double Engine::taxed_end(Rank& rank, std::int32_t i, const Op& op, double start, double seconds) {
  const double end = start + seconds;
  if (op.comm == kCommunicates) {
    if (Learn && end > start) lesson_.flights.emplace_back(start, end);
    if (info(i).computes)
      rank.flights.add(start, end);
    else
      rank.flights.hold(i, start, end);
  } else if (op.comm == kComputes) {
    const double taxed = rank.flights.compute(start, seconds, rates_[static_cast<std::size_t>(rank.index)], layout_.grid);
    if (taxed > end) {
      stretch_[static_cast<std::size_t>(rank.index) * categories_ + static_cast<std::size_t>(op.category)].add(taxed - end);
      return taxed;
    }
  }
  return end;
}

template <bool Tax, bool Window, Trailed Kept, bool Learn>
void Engine::place_ops(Rank& rank, std::int32_t i) {
  State& self = state(i);
  const TemplateInfo& tmpl = info(i);
  const Op* const ops = layout_.ops.data() + tmpl.first;
  const std::int32_t times = program_.instances.times[static_cast<std::size_t>(i)];
  const bool join = has_flag(i, kJoin);
  Stream* const streams = streams_of_rank(rank);
  double* const ends = ends_.data();
  const double* const factor = factors_of(i);
  Sum* const busy_rank = busy_of(rank);
  Gate gate = gate_of(rank, i);
  std::uint32_t gate_event = gate.instance >= 0 ? state(gate.instance).last_event : kNoEvent;
  std::int32_t gate_category = -1;  // of the repetition before this one, with join
  if constexpr (Tax)
    if (tmpl.computes) rank.flights.take_before(i);

  Host host = self.host;
  const double host_begin = host.at;
  double held = 0.0;  // that the host has waited for operators of this instance
  double begin = kNever;
  double last = -1.0;
  std::uint32_t event = self.first_event, last_event = kNoEvent;
  std::int32_t last_category = 0;
  for (std::int32_t repeat = 0; repeat < times; ++repeat) {
    const double host_repeat = host_begin + repeat * tmpl.host_total;
    const std::uint32_t first_of_repeat = event;
    for (std::int32_t k = 0; k < tmpl.size; ++k, ++event) {
      const Op& op = ops[k];
      Stream& stream = streams[op.stream];
      if constexpr (Window) {
        wait_for_queue(rank, event, host);
        host.at += op.host;
      } else {
        host.at = host_repeat + op.host_until + held;
      }

      double start = stream.free;
      Cause cause = Cause::kStream;
      std::int32_t inner = 0;
      if (gate.at > start) start = gate.at, cause = Cause::kWait;
      if (ends[op.wait0] > start) start = ends[op.wait0], cause = Cause::kInner, inner = op.wait0;
      if (ends[op.wait1] > start) start = ends[op.wait1], cause = Cause::kInner, inner = op.wait1;
      if constexpr (Learn)
        if (held == 0.0) lesson_.see_host(start - (host.at - host_begin), host.at > start);
      if (host.at > start) start = host.at, cause = Cause::kHost;

      const double seconds = layout_.grid.snap(op.seconds * factor[op.group]);
      const double end = Tax ? taxed_end<Learn>(rank, i, op, start, seconds) : start + seconds;

      busy_rank[static_cast<std::size_t>(op.stream) * categories_ + static_cast<std::size_t>(op.category)].add(end - start);
      if (op.stream == 0 && start > stream.free) {
        const std::int32_t awaited = cause == Cause::kInner ? ops[inner - 1].category : -1;
        charge_idle(rank, stream.free, start, cause, host, awaited, gate_category, gate.instance);
      }
      if constexpr (Learn)
        if (op.stream == 0 && lesson_.first.op < 0) learn_first(rank, ops, k, start, host.at - host_begin, held > 0.0);
      if constexpr (Window || Kept != Trailed::kNothing) {
        rank.trail.start[event] = start;
        rank.trail.end[event] = end;
      }
      if constexpr (Kept == Trailed::kCauses) {
        const std::uint32_t before = cause == Cause::kWait    ? gate_event
                                     : cause == Cause::kInner ? first_of_repeat + static_cast<std::uint32_t>(inner - 1)
                                     : cause == Cause::kHost  ? host.base_event
                                                              : stream.last_event;
        if (cause == Cause::kHost)
          cause = host.base_cause;
        else if (cause == Cause::kStream && before == kNoEvent)
          cause = Cause::kBegin;
        rank.trail.before[event] = before;
        rank.trail.cause[event] = cause;
      }
      if constexpr (Learn)
        if (op.sync && held == 0.0) lesson_.see_host(end - layout_.grid.unit() - (host.at - host_begin), end <= host.at);
      if (op.sync && end > host.at) {
        held += end - host.at;
        host = Host{end, end, event, -1, Cause::kHost};
      }
      stream.free = end;
      stream.last_event = event;
      ends[k + 1] = end;
      begin = std::min(begin, start);
      if (end >= last) {
        last = end;
        last_event = event;
        last_category = op.category;
      }
    }
    if (join && last > gate.at) {
      gate.at = last;
      gate_event = last_event;
      gate_category = last_category;
    }
  }
  self.begin = begin;
  self.end = last;
  self.last_event = last_event;
  self.category = last_category;
  if (rank.host_unknown == i) {
    rank.host = host;
    rank.host_unknown = -1;
  }
}

void Engine::walk(Rank& rank, std::int32_t i) {
  const auto by_window = [&]<bool Tax, bool Window>() {
    if (rank.trail.before)
      place_ops<Tax, Window, Trailed::kCauses, false>(rank, i);
    else if (rank.trail.start)
      place_ops<Tax, Window, Trailed::kTimes, false>(rank, i);
    else
      place_ops<Tax, Window, Trailed::kNothing, false>(rank, i);
  };
  if (tax_)
    window_ > 0 ? by_window.operator()<true, true>() : by_window.operator()<true, false>();
  else
    window_ > 0 ? by_window.operator()<false, true>() : by_window.operator()<false, false>();
}

void Engine::walk_learning(Rank& rank, std::int32_t i) {
  const auto by_tax = [&]<bool Tax>() {
    rank.trail.start ? place_ops<Tax, false, Trailed::kTimes, true>(rank, i)
                     : place_ops<Tax, false, Trailed::kNothing, true>(rank, i);
  };
  tax_ ? by_tax.operator()<true>() : by_tax.operator()<false>();
}

void Engine::place(Rank& rank, std::int32_t i) {
  if (row(i) >= 0) {
    post(rank, i);
    return;
  }
  if (!recalls(rank, i))
    walk(rank, i);
  else if (!recall(rank, i))
    learn(rank, i);
  finish(rank, i);
}

}  // namespace wt::exec
