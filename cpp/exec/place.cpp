// The inner loop: gives the operators of one instance their times.
#include <algorithm>
#include <bit>

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
  Sum* const busy_rank = busy_.data() + static_cast<std::size_t>(rank.index) * streams_count_ * categories_;
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

// -- instances that begin as another one did

// To look an instance up takes as long as to walk through some 24 operators; templates that do not gain that are left to the walk.
bool Engine::recalls(const Rank& rank, std::int32_t i) const {
  if (!recalls_ || rank.trail.before) return false;
  if (!outcome_.empty()) return true;
  const Shape& shape = shapes_[static_cast<std::size_t>(program_.instances.tmpl[static_cast<std::size_t>(i)])];
  return shape.tried < 64 || shape.spared > 24 * shape.tried;
}

Engine::Shape& Engine::shape_of(std::int32_t i) {
  const auto tmpl = static_cast<std::size_t>(program_.instances.tmpl[static_cast<std::size_t>(i)]);
  Shape& shape = shapes_[tmpl];
  if (!shape.accounts.empty()) return shape;
  const TemplateInfo& t = layout_.templates[tmpl];
  const Op* const ops = layout_.ops.data() + t.first;
  std::uint64_t follows = std::uint64_t{1} << ops->stream;  // streams whose next operator is behind the first one
  std::vector<bool> behind(static_cast<std::size_t>(t.size) + 1, false);
  for (std::int32_t k = 0; k < t.size; ++k) {
    const Op& op = ops[k];
    const bool after = ((follows >> op.stream) & 1U) != 0 || behind[static_cast<std::size_t>(op.wait0)] ||
                       behind[static_cast<std::size_t>(op.wait1)];
    behind[static_cast<std::size_t>(k) + 1] = after;
    if (after) follows |= std::uint64_t{1} << op.stream;
    shape.anchored = shape.anchored && after;
    const auto account = static_cast<std::int32_t>(op.stream * categories_) + op.category;
    if (std::find(shape.accounts.begin(), shape.accounts.end(), account) == shape.accounts.end()) shape.accounts.push_back(account);
  }
  return shape;
}

bool Engine::recall(Rank& rank, std::int32_t i) {
  const TemplateInfo& tmpl = info(i);
  Shape& shape = shape_of(i);
  const Op& first = layout_.ops[static_cast<std::size_t>(tmpl.first)];
  const State& self = state(i);
  const auto at = static_cast<std::size_t>(i);
  Stream* const streams = streams_of_rank(rank);
  const bool taxed = tax_ && tmpl.computes;
  if (taxed) rank.flights.take_before(i);
  const Gate gate = gate_of(rank, i);
  const double released = std::max(gate.at, self.host.at + first.host_until);  // no operator starts before
  const double anchor = anchor_ = std::max(released, streams[first.stream].free);
  const double since = shape.anchored ? anchor : released;  // what ended before is as if it had ended then

  const std::uint64_t how = (has_flag(i, kJoin) ? 1U : 0U) | (rank.trail.start ? 2U : 0U);
  recall_.begin_key(static_cast<std::uint64_t>(program_.instances.tmpl[at]) << 2U | how);
  const auto scale = program_.instances.scale.empty() ? 0U : static_cast<std::uint64_t>(program_.instances.scale[at]);
  recall_.add(static_cast<std::uint64_t>(program_.instances.times[at]) | scale << 32U);
  if (taxed) recall_.add(rates_[static_cast<std::size_t>(rank.index)]);
  for (std::uint64_t mask = tmpl.streams; mask != 0; mask &= mask - 1)
    recall_.add(std::max(streams[std::countr_zero(mask)].free, since) - anchor);
  if (taxed)
    rank.flights.behind(since, [&](double begin, double end) {
      recall_.add(std::max(begin, since) - anchor);
      recall_.add(end - anchor);
    });
  const std::int32_t known = recall_.find(self.host.at - anchor);
  ++shape.tried;
  if (known < 0) return false;
  shape.spared += self.events;
  name_outcome(i, known);
  replay(rank, i, recall_.outcome(known), gate);
  return true;
}

void Engine::replay(Rank& rank, std::int32_t i, const Recalled& known, const Gate& gate) {
  const double anchor = anchor_;
  State& self = state(i);
  Stream* const streams = streams_of_rank(rank);
  if (known.first.op >= 0) charge_first(rank, self, known.first, gate);
  const auto frees = recall_.numbers_of(known.streams);
  std::size_t place = 0;
  for (std::uint64_t mask = info(i).streams; mask != 0; mask &= mask - 1, ++place) {
    Stream& stream = streams[std::countr_zero(mask)];
    stream.free = anchor + frees[place];
    stream.last_event = self.first_event + recall_.events[known.last.first + place];
  }
  Sum* const busy_rank = busy_.data() + static_cast<std::size_t>(rank.index) * streams_count_ * categories_;
  for (const Entry& entry : recall_.entries_of(known.busy)) busy_rank[entry.place].add(entry.seconds);
  for (const Entry& entry : recall_.entries_of(known.idle)) idle(rank, static_cast<std::size_t>(entry.place)).add(entry.seconds);
  for (const Entry& entry : recall_.entries_of(known.stretch)) stretch(rank, entry.place).add(entry.seconds);
  const auto flights = recall_.numbers_of(known.flights);
  for (std::size_t f = 0; f < flights.size(); f += 2) {
    if (info(i).computes)
      rank.flights.add(anchor + flights[f], anchor + flights[f + 1]);
    else
      rank.flights.hold(i, anchor + flights[f], anchor + flights[f + 1]);
  }
  const auto times = recall_.numbers_of(known.times);
  const std::size_t events = times.size() / 2;
  for (std::size_t e = 0; e < events; ++e) rank.trail.start[self.first_event + e] = anchor + times[e];
  for (std::size_t e = 0; e < events; ++e) rank.trail.end[self.first_event + e] = anchor + times[events + e];
  recalled_ += self.events;
  self.begin = anchor + known.begin;
  self.end = anchor + known.end;
  self.last_event = self.first_event + known.last_event;
  self.category = known.category;
  if (rank.host_unknown != i) return;
  rank.host = self.host;
  rank.host.at = anchor + known.host_end;
  if (known.held) rank.host = Host{rank.host.at, anchor + known.held_until, self.first_event + known.held_by, -1, Cause::kHost};
  rank.host_unknown = -1;
}

// The idle time of the compute stream before its first operator, which began as late as place_ops would have found.
void Engine::charge_first(Rank& rank, const State& self, const FirstOnCompute& first, const Gate& gate) {
  const double from = streams_of_rank(rank)[0].free, start = anchor_ + first.start;
  if (start <= from) return;
  double latest = from;
  Cause cause = Cause::kStream;
  std::int32_t inner = -1;
  Host host = self.host;
  host.at += first.host;
  if (gate.at > latest) latest = gate.at, cause = Cause::kWait;
  if (anchor_ + first.end0 > latest) latest = anchor_ + first.end0, cause = Cause::kInner, inner = first.category0;
  if (anchor_ + first.end1 > latest) latest = anchor_ + first.end1, cause = Cause::kInner, inner = first.category1;
  if (host.at > latest) cause = Cause::kHost;
  charge_idle(rank, from, start, cause, host, inner, -1, gate.instance);
}

void Engine::learn_first(const Rank& rank, const Op* ops, std::int32_t k, double start, double host, bool held) {
  if (held) lesson_.usable = false;  // when the host comes to it does not follow from its begin
  FirstOnCompute& first = lesson_.first;
  first.op = k, first.start = start - anchor_, first.host = host;
  const auto awaited = [&](std::int32_t wait, double& end, std::int32_t& category) {
    if (wait > 0) end = ends_[static_cast<std::size_t>(wait)] - anchor_, category = ops[wait - 1].category;
  };
  awaited(ops[k].wait0, first.end0, first.category0);
  awaited(ops[k].wait1, first.end1, first.category1);
  for (std::size_t c = 0; c < categories_ + 2; ++c) lesson_.idle[c] = idle(rank, c).value();
}

// Walks through the instance, and keeps what became of it.
void Engine::learn(Rank& rank, std::int32_t i) {
  if (!recall_.keeps()) {
    walk(rank, i);
    return;
  }
  const double anchor = anchor_;
  const Shape& shape = shape_of(i);
  Sum* const busy_rank = busy_.data() + static_cast<std::size_t>(rank.index) * streams_count_ * categories_;
  lesson_.begin(shape.accounts.size(), categories_);
  for (std::size_t a = 0; a < shape.accounts.size(); ++a) lesson_.busy[a] = busy_rank[shape.accounts[a]].value();
  for (std::size_t c = 0; c < categories_; ++c) lesson_.stretch[c] = stretch(rank, static_cast<std::int32_t>(c)).value();
  const double host_begin = state(i).host.at;
  walk_learning(rank, i);

  if (!lesson_.usable) return;
  const State& self = state(i);
  Recalled out;
  out.begin = self.begin - anchor, out.end = self.end - anchor;
  out.felt = lesson_.felt;
  out.host = (lesson_.felt ? host_begin : lesson_.latest_host) - anchor;
  out.last_event = self.last_event - self.first_event;
  out.category = self.category;
  if (info(i).syncs) {
    out.host_end = rank.host.at - anchor;
    out.held = rank.host.base_at > host_begin;
    out.held_until = rank.host.base_at - anchor, out.held_by = rank.host.base_event - self.first_event;
  }
  out.first = lesson_.first;
  const auto begin_of = [](const auto& vector) { return static_cast<std::uint32_t>(vector.size()); };
  const auto close = [](Stretch& at, const auto& vector) { at.count = static_cast<std::uint32_t>(vector.size()) - at.first; };
  std::vector<double>& numbers = recall_.numbers;
  std::vector<Entry>& entries = recall_.entries;
  out.streams.first = begin_of(numbers), out.last.first = begin_of(recall_.events);
  for (std::uint64_t mask = info(i).streams; mask != 0; mask &= mask - 1) {
    const Stream& stream = streams_of_rank(rank)[std::countr_zero(mask)];
    numbers.push_back(stream.free - anchor);
    recall_.events.push_back(stream.last_event - self.first_event);
  }
  close(out.streams, numbers), close(out.last, recall_.events);
  const auto account = [&](std::int32_t place, double seconds) {
    if (seconds != 0.0) entries.push_back({place, seconds});
  };
  out.busy.first = begin_of(entries);
  for (std::size_t a = 0; a < shape.accounts.size(); ++a)
    account(shape.accounts[a], busy_rank[shape.accounts[a]].value() - lesson_.busy[a]);
  close(out.busy, entries);
  out.idle.first = begin_of(entries);
  for (std::size_t c = 0; out.first.op >= 0 && c < categories_ + 2; ++c)
    account(static_cast<std::int32_t>(c), idle(rank, c).value() - lesson_.idle[c]);
  close(out.idle, entries);
  out.stretch.first = begin_of(entries);
  for (std::size_t c = 0; c < categories_; ++c)
    account(static_cast<std::int32_t>(c), stretch(rank, static_cast<std::int32_t>(c)).value() - lesson_.stretch[c]);
  close(out.stretch, entries);
  out.flights.first = begin_of(numbers);
  for (const auto& [begin, end] : lesson_.flights) numbers.push_back(begin - anchor), numbers.push_back(end - anchor);
  close(out.flights, numbers);
  out.times.first = begin_of(numbers);
  if (rank.trail.start)
    for (const double* const of : {rank.trail.start, rank.trail.end})
      for (std::int32_t e = 0; e < self.events; ++e)
        numbers.push_back(of[self.first_event + static_cast<std::uint32_t>(e)] - anchor);
  close(out.times, numbers);
  name_outcome(i, recall_.keep(out));
}

}  // namespace wt::exec
