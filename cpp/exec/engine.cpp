#include "exec/engine.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/check.h"
#include "exec/clocked.h"

namespace wt::exec {

Engine::Engine(const Program& program, net::Network& network) : Book(program, network, false) {
  std::int32_t longest = 0;
  for (const TemplateInfo& t : layout_.templates) longest = std::max(longest, t.size);
  ends_.assign(static_cast<std::size_t>(longest) + 1, -1.0);
  recalls_ = window_ == 0 && layout_.grid.unit() > 0.0;
  if (program.options.outcomes) outcome_.assign(program.instances.tmpl.size(), -1);
  shapes_.resize(layout_.templates.size());
}

std::uint64_t Engine::streams_of(std::int32_t i) const {
  if (row(i) < 0) return info(i).streams;
  return std::uint64_t{1} << program_.rendezvous.stream[static_cast<std::size_t>(row(i))];
}

bool Engine::can_admit(Rank& rank) {
  if (rank.host_unknown >= 0) return false;
  if (rank.sync >= 0) {
    if (!done(rank.sync)) return false;
    settle_sync(rank);
  }
  if (window_ == 0) return true;
  while (rank.low < rank.cursor && state(rank.low).status >= Status::kPosted) ++rank.low;
  // The host needs the start of every operator that lies a window or more before the ones it enqueues now.
  const State& s = state(rank.cursor);
  const std::int64_t known = rank.low < rank.last ? state(rank.low).first_event : rank.events;
  const std::int64_t needed = std::min<std::int64_t>(s.first_event, std::int64_t{s.first_event} + s.events - window_);
  return known >= needed;
}

void Engine::wait_for(std::int32_t source, std::int32_t target) {
  if (done(source)) return;
  State& s = state(source);
  edges_.push_back({s.edges, target});
  s.edges = static_cast<std::int32_t>(edges_.size()) - 1;
  ++state(target).open;
}

// Host clock behind an instance that has no start yet; its operators enter the queue all the same.
void Engine::advance_host(Rank& rank, std::int32_t i) {
  const State& s = state(i);
  const bool meets = row(i) >= 0;
  if (window_ == 0) {
    rank.host.at += meets ? layout_.meeting_host[static_cast<std::size_t>(row(i))]
                          : program_.instances.times[static_cast<std::size_t>(i)] * info(i).host_total;
    return;
  }
  if (static_cast<std::uint32_t>(s.events) > window_) {
    rank.host_unknown = i;  // its last operators wait for its first ones
    return;
  }
  Host host = rank.host;
  for (std::int32_t k = 0; k < s.events; ++k) {
    const std::uint32_t event = s.first_event + static_cast<std::uint32_t>(k);
    wait_for_queue(rank, event, host);
    host.at += meets ? layout_.meeting_host[static_cast<std::size_t>(row(i))]
                     : layout_.ops[static_cast<std::size_t>(info(i).first + k % info(i).size)].host;
  }
  rank.host = host;
}

void Engine::admit(Rank& rank) {
  const std::int32_t i = rank.cursor++;
  const Instances& in = program_.instances;
  State& s = state(i);
  s.host = rank.host;
  Stream* const streams = streams_of_rank(rank);
  for (std::uint64_t mask = streams_of(i); mask != 0; mask &= mask - 1) {
    Stream& stream = streams[std::countr_zero(mask)];
    if (stream.last_user >= 0) wait_for(stream.last_user, i);
    stream.last_user = i;
  }
  for (auto w = in.wait_start[static_cast<std::size_t>(i)]; w < in.wait_start[static_cast<std::size_t>(i) + 1]; ++w)
    wait_for(rank.first + in.waits[static_cast<std::size_t>(w)], i);
  const bool in_line = tax_ && computes(i);
  if (in_line) rank.computing.push_back(i);
  if (tax_ && (row(i) >= 0 || info(i).communicates)) rank.communicating.push_back(i);
  if (has_flag(i, kHostSync)) rank.sync = i;
  s.status = Status::kPending;
  const bool now = s.open == 0 && (!in_line || (next_computing_is_known(rank) && rank.computing[rank.next_computing] == i));
  if ((now && window_ > 0) || (row(i) < 0 && info(i).syncs))
    rank.host_unknown = i;  // only place() knows it, or knows it better than a second walk over the operators
  else
    advance_host(rank, i);
  if (now) place(rank, i);
}

// With a tax: the next computing instance has its inputs, and all communication before it has ended.
bool Engine::next_computing_is_known(Rank& rank) {
  while (rank.next_computing < rank.computing.size() && done(rank.computing[rank.next_computing])) ++rank.next_computing;
  if (rank.next_computing == rank.computing.size()) return false;
  while (rank.first_open < rank.communicating.size() && done(rank.communicating[rank.first_open])) ++rank.first_open;
  const std::int32_t next = rank.computing[rank.next_computing];
  return state(next).open == 0 && (rank.first_open == rank.communicating.size() || rank.communicating[rank.first_open] >= next);
}

void Engine::post(Rank& rank, std::int32_t i) {
  State& s = state(i);
  const Rendezvous& rv = program_.rendezvous;
  const auto at = static_cast<std::size_t>(row(i));
  const int on = rv.stream[at];
  Stream& stream = streams_of_rank(rank)[on];
  Host host = s.host;
  if (window_ > 0) wait_for_queue(rank, s.first_event, host);
  host.at += layout_.meeting_host[at];
  if (rank.host_unknown == i) {
    rank.host = host;
    rank.host_unknown = -1;
  }

  const Gate gate = gate_of(rank, i);
  double start = stream.free;
  Cause cause = stream.last_event == kNoEvent ? Cause::kBegin : Cause::kStream;
  std::uint32_t before = stream.last_event;
  if (gate.at > start) start = gate.at, cause = Cause::kWait, before = state(gate.instance).last_event;
  if (host.at > start) start = host.at, cause = host.base_cause, before = host.base_event;
  if (on == 0 && start > stream.free) {
    if (cause == Cause::kWait)
      charge(rank, stream.free, start, gate.instance);
    else
      charge_host(rank, stream.free, start, host);
  }
  if (rank.trail.start) rank.trail.start[s.first_event] = start;
  if (rank.trail.before) {
    rank.trail.before[s.first_event] = before;
    rank.trail.cause[s.first_event] = cause;
  }
  s.begin = start;
  s.last_event = s.first_event;
  s.category = rv.cat_transfer[at];
  s.status = Status::kPosted;
  stream.last_event = s.first_event;
  s.parts_left = static_cast<std::int32_t>(rv.part_start[at + 1] - rv.part_start[at]);
  for (auto p = static_cast<std::size_t>(rv.part_start[at]); p < static_cast<std::size_t>(rv.part_start[at + 1]); ++p) {
    const std::int32_t id = layout_.key_id[p];
    Key& key = keys_[static_cast<std::size_t>(id)];
    key.begin = std::max(key.begin, start);
    key.seconds = std::max(key.seconds, layout_.part_seconds[p]);
    if (++key.posted == key.participants) set_off(id);
  }
}

void Engine::set_off(std::int32_t id) {
  Key& key = keys_[static_cast<std::size_t>(id)];
  if (const auto end = network_.start(net::Flow{id, key.name, key.begin, key.seconds})) {
    complete(id, *end);
    return;
  }
  if (!tax_) return;
  key.estimated = true;
  for (auto m = layout_.member_start[static_cast<std::size_t>(id)]; m < layout_.member_start[static_cast<std::size_t>(id) + 1];
       ++m) {
    const Member member = layout_.members[static_cast<std::size_t>(m)];
    ranks_[static_cast<std::size_t>(member.rank)].flights.hold(member.instance, key.begin, key.begin + key.seconds);
  }
}

// A transfer has ended: every participant may be done with its instance.
void Engine::complete(std::int32_t id, double end) {
  end = layout_.grid.snap(end);
  const Key& key = keys_[static_cast<std::size_t>(id)];
  if (!(end >= key.begin)) fail("the network ended key ", key.name, " at ", end, ", before its begin at ", key.begin);
  for (auto m = layout_.member_start[static_cast<std::size_t>(id)]; m < layout_.member_start[static_cast<std::size_t>(id) + 1];
       ++m) {
    const Member member = layout_.members[static_cast<std::size_t>(m)];
    Rank& rank = ranks_[static_cast<std::size_t>(member.rank)];
    if (tax_ && !key.estimated) rank.flights.hold(member.instance, key.begin, end);
    if (end_part(rank, member.instance, id, end)) finish(rank, member.instance);
  }
}

void Engine::finish(Rank& rank, std::int32_t i) {
  State& s = state(i);
  s.status = Status::kDone;
  --remaining_;
  for (std::int32_t e = s.edges; e >= 0;) {
    const Edge edge = edges_[static_cast<std::size_t>(e)];
    State& target = state(edge.target);
    if (--target.open == 0 && !(tax_ && computes(edge.target))) {
      target.status = Status::kReady;
      rank.ready.push_back(edge.target);
    }
    e = edge.next;
  }
  enqueue(rank);
}

void Engine::enqueue(Rank& rank) {
  if (rank.queued) return;
  rank.queued = true;
  queue_.push_back(rank.index);
}

void Engine::drain() {
  while (!queue_.empty()) {
    Rank& rank = ranks_[static_cast<std::size_t>(queue_.back())];
    queue_.pop_back();
    for (;;) {  // still marked as queued, so that it does not enter twice
      if (!rank.ready.empty()) {
        const std::int32_t i = rank.ready.back();
        rank.ready.pop_back();
        place(rank, i);
      } else if (tax_ && next_computing_is_known(rank)) {
        place(rank, rank.computing[rank.next_computing]);
      } else if (rank.cursor < rank.last && can_admit(rank)) {
        admit(rank);
      } else {
        break;
      }
    }
    rank.queued = false;
  }
}

// Instances that could be placed but for the tax, with the earliest start of all; at most one of each rank: its next computing
// one, or, where no rank has that, one further on (its stream goes on while the next one waits for another rank).
std::vector<Engine::Candidate> Engine::held_by_the_tax() {
  std::vector<Candidate> found;
  double earliest = kNever;
  for (const bool further_on : {false, true}) {
    for (Rank& rank : ranks_) {
      Candidate best{&rank, -1, kNever};
      for (std::size_t c = rank.next_computing; c < rank.computing.size() && (further_on || c == rank.next_computing); ++c) {
        const std::int32_t i = rank.computing[c];
        if (done(i) || state(i).open > 0) continue;
        const Op& op = layout_.ops[static_cast<std::size_t>(info(i).first)];
        const double start = std::max({streams_of_rank(rank)[op.stream].free, gate_of(rank, i).at, state(i).host.at + op.host});
        if (start < best.start) best = {&rank, i, start};
      }
      if (best.instance < 0 || best.start > earliest) continue;
      if (best.start < earliest) found.clear();
      earliest = best.start;
      found.push_back(best);
    }
    if (!found.empty()) break;
  }
  return found;
}

Timeline Engine::run() {
  for (Rank& rank : ranks_) enqueue(rank);
  for (;;) {
    drain();
    if (remaining_ == 0) break;
    const double event = network_.next_event();
    const std::vector<Candidate> held = tax_ ? held_by_the_tax() : std::vector<Candidate>{};
    const double start = held.empty() ? kNever : held.front().start;
    if (event == kNever && held.empty()) deadlock();
    if (event <= start) {
      // ranks stay as they are until a transfer completes, and so does what the tax holds
      std::optional<net::Completion> completion;
      for (double at = event; !completion && at <= start && at != kNever; at = network_.next_event())
        completion = network_.advance();
      if (completion) complete(completion->id, completion->end);
    } else {
      for (const Candidate& c : held) place(*c.rank, c.instance);  // touches its own rank only, so equal starts have no order
    }
  }
  Timeline out = results();
  out.recalled = recalled_;
  out.outcome = std::move(outcome_);
  return out;
}

Timeline run(const Program& program, net::Network& network) {
  return program.templates.live.empty() ? Engine(program, network).run() : Clocked(program, network).run();
}

}  // namespace wt::exec
