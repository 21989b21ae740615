// Instances that begin as another one did: looked up, given the times of that one, or learned from. Nobody asks for the critical
// path then, and events that bound others are not noted.
#include <algorithm>
#include <bit>

#include "exec/engine.h"

namespace wt::exec {

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
  const double* free = frees.data();
  for (std::uint64_t mask = info(i).streams; mask != 0; mask &= mask - 1) streams[std::countr_zero(mask)].free = anchor + *free++;
  Sum* const busy_rank = busy_of(rank);
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
  self.category = known.category;
  if (rank.host_unknown != i) return;
  rank.host = self.host;
  rank.host.at = anchor + known.host_end;
  if (known.held) rank.host = Host{rank.host.at, anchor + known.held_until};
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

// What has become of the instance, which was walked through and learned from.
Recalled Engine::outcome_of(const Rank& rank, std::int32_t i, double host_begin) {
  const double anchor = anchor_;
  const State& self = state(i);
  Recalled out;
  out.begin = self.begin - anchor, out.end = self.end - anchor;
  out.felt = lesson_.felt;
  out.host = (lesson_.felt ? host_begin : lesson_.latest_host) - anchor;
  out.category = self.category;
  if (info(i).syncs) {
    out.host_end = rank.host.at - anchor;
    out.held = rank.host.base_at > host_begin;
    out.held_until = rank.host.base_at - anchor;
  }
  out.first = lesson_.first;
  const auto fill = [](Slice& at, const auto& vector, const auto& write) {
    at.first = static_cast<std::uint32_t>(vector.size());
    write();
    at.count = static_cast<std::uint32_t>(vector.size()) - at.first;
  };
  std::vector<double>& numbers = recall_.numbers;
  const Stream* const streams = streams_of_rank(rank);
  fill(out.streams, numbers, [&] {
    for (std::uint64_t mask = info(i).streams; mask != 0; mask &= mask - 1)
      numbers.push_back(streams[std::countr_zero(mask)].free - anchor);
  });
  const auto account = [&](std::size_t place, double seconds) {
    if (seconds != 0.0) recall_.entries.push_back({static_cast<std::int32_t>(place), seconds});
  };
  const std::vector<std::int32_t>& accounts = shape_of(i).accounts;
  fill(out.busy, recall_.entries, [&] {
    const Sum* const busy_rank = busy_of(rank);
    for (std::size_t a = 0; a < accounts.size(); ++a)
      account(static_cast<std::size_t>(accounts[a]), busy_rank[accounts[a]].value() - lesson_.busy[a]);
  });
  fill(out.idle, recall_.entries, [&] {
    for (std::size_t c = 0; out.first.op >= 0 && c < categories_ + 2; ++c) account(c, idle(rank, c).value() - lesson_.idle[c]);
  });
  fill(out.stretch, recall_.entries, [&] {
    for (std::size_t c = 0; c < categories_; ++c)
      account(c, stretch(rank, static_cast<std::int32_t>(c)).value() - lesson_.stretch[c]);
  });
  fill(out.flights, numbers, [&] {
    for (const auto& [begin, end] : lesson_.flights) numbers.push_back(begin - anchor), numbers.push_back(end - anchor);
  });
  fill(out.times, numbers, [&] {
    if (rank.trail.start)
      for (const double* const of : {rank.trail.start, rank.trail.end})
        for (std::int32_t e = 0; e < self.events; ++e)
          numbers.push_back(of[self.first_event + static_cast<std::uint32_t>(e)] - anchor);
  });
  return out;
}

// Walks through the instance, and keeps what became of it.
void Engine::learn(Rank& rank, std::int32_t i) {
  if (!recall_.keeps()) {
    walk(rank, i);
    return;
  }
  const Shape& shape = shape_of(i);
  const Sum* const busy_rank = busy_of(rank);
  lesson_.begin(shape.accounts.size(), categories_);
  for (std::size_t a = 0; a < shape.accounts.size(); ++a) lesson_.busy[a] = busy_rank[shape.accounts[a]].value();
  for (std::size_t c = 0; c < categories_; ++c) lesson_.stretch[c] = stretch(rank, static_cast<std::int32_t>(c)).value();
  const double host_begin = state(i).host.at;
  walk_learning(rank, i);
  if (lesson_.usable) name_outcome(i, recall_.keep(outcome_of(rank, i, host_begin)));
}

}  // namespace wt::exec
