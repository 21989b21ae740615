#include "exec/clocked.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <tuple>

#include "base/check.h"

namespace wt::exec {

namespace {

constexpr std::int64_t kAhead = 1024;  // items that a host enqueues before their time

}  // namespace

Clocked::Clocked(const Program& program, net::Network& network)
    : Book(program, network, true),
      lines_(ranks_.size() * streams_count_),
      courses_(ranks_.size()),
      gated_(program.instances.tmpl.size()) {
  for (Rank& rank : ranks_) {
    std::fill_n(rank.trail.start, rank.events, -1.0);
    std::fill_n(rank.trail.end, rank.events, -1.0);
  }
}

// -- the host

bool Clocked::wait_for_queue(const Rank& rank, std::uint32_t event, Host& host) const {
  if (window_ == 0 || event < window_) return true;
  const double start = rank.trail.start[event - window_];
  if (start < 0.0) return false;
  if (start > host.at) host = Host{start, start, event - window_, -1, Cause::kWindow};
  return true;
}

bool Clocked::open(Rank& rank) {
  if (rank.sync >= 0) {
    if (!done(rank.sync)) return false;
    settle_sync(rank);
  }
  State& s = state(rank.cursor);
  Course& c = course(rank);
  s.host = rank.host;
  s.begin = kNever;
  s.status = Status::kPending;
  c.base = rank.host.at;
  c.held = 0.0;
  return true;
}

bool Clocked::enqueue(Rank& rank) {
  Course& c = course(rank);
  if (c.awaited != kNoEvent) {
    const double end = rank.trail.end[c.awaited];
    if (end < 0.0) return false;
    if (end > rank.host.at) {
      c.held += end - rank.host.at;
      rank.host = Host{end, end, c.awaited, -1, Cause::kHost};
    }
    c.awaited = kNoEvent;
  }
  if (rank.cursor == rank.last) return false;
  const std::int32_t i = rank.cursor;
  if (state(i).status == Status::kAhead && !open(rank)) return false;
  const bool meets = row(i) >= 0;
  if (!wait_for_queue(rank, c.event, rank.host)) return false;
  const Op* const op = meets ? nullptr : &layout_.ops[static_cast<std::size_t>(info(i).first + c.op)];
  if (meets)
    rank.host.at += layout_.meeting_host[static_cast<std::size_t>(row(i))];
  else if (window_ > 0)
    rank.host.at += op->host;
  else
    rank.host.at = c.base + c.repeat * info(i).host_total + op->host_until + c.held;
  const std::int32_t stream = meets ? program_.rendezvous.stream[static_cast<std::size_t>(row(i))] : op->stream;
  Line& on = line(rank, stream);
  on.items.push_back({c.event, i, c.repeat, meets ? -1 : c.op, rank.host});
  ++c.queued;
  if (!on.busy && on.items.size() == 1) todo_.push_back({rank.index, stream});
  if (!meets && op->sync) c.awaited = c.event;
  ++c.event;
  if (!meets && ++c.op < info(i).size) return true;
  c.op = 0;
  if (++c.repeat < program_.instances.times[static_cast<std::size_t>(i)]) return true;
  c.repeat = 0;
  if (has_flag(i, kHostSync)) rank.sync = i;
  ++rank.cursor;
  return true;
}

void Clocked::walk(Rank& rank) {
  Course& c = course(rank);
  if (c.walking) return;
  c.walking = true;
  while (enqueue(rank)) {
    if (c.queued < kAhead || rank.host.at <= now_ || c.woken) continue;
    c.woken = true;
    schedule(rank.host.at, What::kWalk, rank.index, 0, 0);
    break;
  }
  c.walking = false;
}

// -- starts and ends

// What bounds the start of a stream's first item; false if that is not known yet.
bool Clocked::choose(Rank& rank, std::int32_t stream, Choice& out) {
  const Item& item = line(rank, stream).items.front();
  const std::int32_t i = item.instance;
  const State& self = state(i);
  Gated& gated = gated_[static_cast<std::size_t>(i)];
  if (!gated.known) {
    const Instances& in = program_.instances;
    for (auto w = in.wait_start[static_cast<std::size_t>(i)]; w < in.wait_start[static_cast<std::size_t>(i) + 1]; ++w)
      if (!done(rank.first + in.waits[static_cast<std::size_t>(w)])) return false;
    const Gate gate = gate_of(rank, i);
    gated = {gate.at, gate.instance >= 0 ? state(gate.instance).last_event : kNoEvent, gate.instance, -1, true};
  }
  Stream& on = streams_of_rank(rank)[stream];
  out = {on.free, on.last_event == kNoEvent ? Cause::kBegin : Cause::kStream, 0};
  const Op* const op = item.op < 0 ? nullptr : &layout_.ops[static_cast<std::size_t>(info(i).first + item.op)];
  if (item.repeat > 0 && has_flag(i, kJoin) && self.open < item.repeat * info(i).size) return false;
  if (gated.at > out.start) out.start = gated.at, out.cause = Cause::kWait;
  if (op != nullptr)
    for (const std::int32_t w : {op->wait0, op->wait1}) {
      if (w == 0) continue;
      const double end = rank.trail.end[item.event - static_cast<std::uint32_t>(item.op - (w - 1))];
      if (end < 0.0) return false;
      if (end > out.start) out.start = end, out.cause = Cause::kInner, out.inner = w;
    }
  if (item.host.at > out.start) out.start = item.host.at, out.cause = Cause::kHost;
  return true;
}

void Clocked::look(Rank& rank, std::int32_t stream) {
  Line& on = line(rank, stream);
  if (on.busy || on.items.empty() || on.tried) return;
  Choice choice;
  if (!choose(rank, stream, choice)) {
    course(rank).waiting |= std::uint64_t{1} << stream;
    return;
  }
  if (choice.start > now_) {
    on.tried = true;
    schedule(choice.start, What::kTry, rank.index, stream, 0);
    return;
  }
  begin(rank, stream, choice);
}

void Clocked::begin(Rank& rank, std::int32_t stream, const Choice& choice) {
  Line& on = line(rank, stream);
  const Item item = on.items.front();
  on.items.pop_front();
  --course(rank).queued;
  on.busy = true;
  on.event = item.event;
  on.instance = item.instance;
  on.op = item.op;
  note(rank, item, stream, choice);
  if (item.op < 0)
    post(item, choice.start);
  else
    begin_op(rank, stream, item, choice.start);
  if (window_ > 0) walk(rank);  // the queue has room for one more
}

// Books what the compute stream waited for, and leaves the trail.
void Clocked::note(Rank& rank, const Item& item, std::int32_t stream, const Choice& choice) {
  const double free = streams_of_rank(rank)[stream].free;
  if (stream == 0 && choice.start > free) {
    const Op* const ops = item.op < 0 ? nullptr : layout_.ops.data() + info(item.instance).first;
    const std::int32_t inner = choice.cause == Cause::kInner ? ops[choice.inner - 1].category : -1;
    const Gated& gate = gated_[static_cast<std::size_t>(item.instance)];
    charge_idle(rank, free, choice.start, choice.cause, item.host, inner, gate.category, gate.instance);
  }
  rank.trail.start[item.event] = choice.start;
  if (!rank.trail.before) return;
  std::uint32_t before = streams_of_rank(rank)[stream].last_event;
  Cause cause = choice.cause;
  if (cause == Cause::kWait) before = gated_[static_cast<std::size_t>(item.instance)].event;
  if (cause == Cause::kInner) before = item.event - static_cast<std::uint32_t>(item.op - (choice.inner - 1));
  if (cause == Cause::kHost) before = item.host.base_event, cause = item.host.base_cause;
  rank.trail.before[item.event] = before;
  rank.trail.cause[item.event] = cause;
}

void Clocked::begin_op(Rank& rank, std::int32_t stream, const Item& item, double start) {
  Line& on = line(rank, stream);
  const std::int64_t at = info(item.instance).first + item.op;
  const Op& op = layout_.ops[static_cast<std::size_t>(at)];
  State& s = state(item.instance);
  on.begin = start;
  on.seconds = layout_.grid.snap(op.seconds * factors_of(item.instance)[op.group]);
  s.begin = std::min(s.begin, start);
  const std::int32_t call = program_.templates.live[static_cast<std::size_t>(at)];
  if (tax_ && op.comm == kCommunicates) fly(rank, item.event, start);
  if (call >= 0) {
    auto slot = static_cast<std::int32_t>(calls_.size());
    if (free_.empty()) {
      calls_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    calls_[static_cast<std::size_t>(slot)] = {rank.index, stream};
    const std::int64_t key = program_.options.live_key + rank.index * program_.options.live_calls + call;
    // The network knows bytes, not how much more of them a slow instance has: what it says is stretched when it has said it.
    on.longer = std::max(1.0, factors_of(item.instance)[op.group]);
    starts_.push_back({key, {static_cast<std::int32_t>(keys_.size()) + slot, key, start, on.seconds / on.longer}});
    return;
  }
  if (tax_ && op.comm == kComputes) {
    Course& c = course(rank);
    c.computing |= std::uint64_t{1} << stream;
    on.left = on.seconds;
    on.since = start;
    on.rate = c.earliest < item.event ? rates_[static_cast<std::size_t>(rank.index)] : 1.0;
    if (on.rate > 0.0) schedule(start + on.left / on.rate, What::kEnd, rank.index, stream, ++on.version);
    return;
  }
  schedule(start + on.seconds, What::kEnd, rank.index, stream, ++on.version);
}

void Clocked::post(const Item& item, double start) {
  State& s = state(item.instance);
  const Rendezvous& rv = program_.rendezvous;
  const auto at = static_cast<std::size_t>(row(item.instance));
  s.begin = start;
  s.last_event = item.event;
  s.category = rv.cat_transfer[at];
  s.status = Status::kPosted;
  s.parts_left = static_cast<std::int32_t>(rv.part_start[at + 1] - rv.part_start[at]);
  for (auto p = static_cast<std::size_t>(rv.part_start[at]); p < static_cast<std::size_t>(rv.part_start[at + 1]); ++p) {
    const std::int32_t id = layout_.key_id[p];
    Key& key = keys_[static_cast<std::size_t>(id)];
    key.begin = std::max(key.begin, start);
    key.seconds = std::max(key.seconds, layout_.part_seconds[p]);
    if (++key.posted < key.participants) continue;
    starts_.push_back({key.name, {id, key.name, key.begin, key.seconds}});
    if (!tax_) continue;
    for (auto m = layout_.member_start[static_cast<std::size_t>(id)]; m < layout_.member_start[static_cast<std::size_t>(id) + 1];
         ++m) {
      const Member member = layout_.members[static_cast<std::size_t>(m)];
      fly(ranks_[static_cast<std::size_t>(member.rank)], state(member.instance).first_event, key.begin);
    }
  }
}

void Clocked::end(Rank& rank, std::int32_t stream, double at) {
  Line& on = line(rank, stream);
  const std::int32_t i = on.instance;
  const Op& op = layout_.ops[static_cast<std::size_t>(info(i).first + on.op)];
  State& s = state(i);
  const std::uint32_t event = on.event;
  Stream& own = streams_of_rank(rank)[stream];
  own.free = at;
  own.last_event = event;
  on.busy = false;
  rank.trail.end[event] = at;
  busy(rank, stream, op.category).add(at - on.begin);
  if (tax_) {
    course(rank).computing &= ~(std::uint64_t{1} << stream);
    if (op.comm == kCommunicates) land(rank, event, at);
    if (op.comm == kComputes && at > on.begin + on.seconds) stretch(rank, op.category).add(at - (on.begin + on.seconds));
  }
  if (at > s.end || (at == s.end && event > s.last_event)) {
    s.end = at;
    s.last_event = event;
    s.category = op.category;
  }
  if (++s.open == s.events)
    finish(rank, i);
  else if (has_flag(i, kJoin) && s.open % info(i).size == 0)
    if (Gated& gate = gated_[static_cast<std::size_t>(i)]; s.end > gate.at)  // the next repetition waits for this one
      gate.at = s.end, gate.event = s.last_event, gate.category = s.category;
  todo_.push_back({rank.index, stream});
  wake(rank);
}

void Clocked::complete(std::int32_t id, double at) {
  if (static_cast<std::size_t>(id) >= keys_.size()) {
    const auto slot = static_cast<std::size_t>(id) - keys_.size();
    const Place of = calls_[slot];
    free_.push_back(static_cast<std::int32_t>(slot));
    Rank& rank = ranks_[static_cast<std::size_t>(of.rank)];
    Line& on = line(rank, of.stream);
    if (on.longer > 1.0 && at > on.begin)
      schedule(on.begin + (at - on.begin) * on.longer, What::kEnd, rank.index, of.stream, ++on.version);
    else
      end(rank, of.stream, std::max(at, on.begin));
    return;
  }
  const Key& key = keys_[static_cast<std::size_t>(id)];
  const double ended = std::max(at, key.begin);
  for (auto m = layout_.member_start[static_cast<std::size_t>(id)]; m < layout_.member_start[static_cast<std::size_t>(id) + 1];
       ++m) {
    const Member member = layout_.members[static_cast<std::size_t>(m)];
    Rank& rank = ranks_[static_cast<std::size_t>(member.rank)];
    if (tax_) land(rank, state(member.instance).first_event, ended);
    if (!end_part(rank, member.instance, id, ended)) continue;
    const int stream = program_.rendezvous.stream[static_cast<std::size_t>(row(member.instance))];
    line(rank, stream).busy = false;
    finish(rank, member.instance);
    todo_.push_back({rank.index, stream});
    wake(rank);
  }
}

void Clocked::finish(Rank& rank, std::int32_t i) {
  state(i).status = Status::kDone;
  --remaining_;
  if (rank.sync == i) walk(rank);
}

// Something has ended: looks again at what waited.
void Clocked::wake(Rank& rank) {
  Course& c = course(rank);
  for (; c.waiting != 0; c.waiting &= c.waiting - 1) todo_.push_back({rank.index, std::countr_zero(c.waiting)});
  if (c.awaited != kNoEvent && rank.trail.end[c.awaited] >= 0.0) walk(rank);
}

// -- the tax

void Clocked::fly(Rank& rank, std::uint32_t event, double at) {
  Course& c = course(rank);
  c.flights.push_back(event);
  if (event >= c.earliest) return;
  c.earliest = event;
  settle(rank, at);
}

void Clocked::land(Rank& rank, std::uint32_t event, double at) {
  Course& c = course(rank);
  c.flights.erase(std::find(c.flights.begin(), c.flights.end(), event));
  const std::uint32_t before = c.earliest;
  c.earliest = c.flights.empty() ? kNoEvent : *std::min_element(c.flights.begin(), c.flights.end());
  if (c.earliest != before) settle(rank, at);
}

// Computing goes on at another rate from `at` on, where that has changed.
void Clocked::settle(Rank& rank, double at) {
  const Course& c = course(rank);
  for (std::uint64_t mask = c.computing; mask != 0; mask &= mask - 1) {
    const std::int32_t stream = std::countr_zero(mask);
    Line& on = line(rank, stream);
    const double rate = c.earliest < on.event ? rates_[static_cast<std::size_t>(rank.index)] : 1.0;
    if (rate == on.rate) continue;
    on.left = std::max(0.0, on.left - (at - on.since) * on.rate);
    on.since = at;
    on.rate = rate;
    ++on.version;
    if (rate > 0.0) schedule(at + on.left / rate, What::kEnd, rank.index, stream, on.version);
  }
}

// -- events

void Clocked::schedule(double time, What what, std::int32_t rank, std::int32_t stream, std::uint32_t version) {
  events_.push({time, orders_++, rank, version, what, static_cast<std::uint8_t>(stream)});
}

double Clocked::next_own() {
  for (; !events_.empty(); events_.pop()) {
    const Event& e = events_.top();
    const bool stale = e.what == What::kEnd && line(ranks_[static_cast<std::size_t>(e.rank)], e.stream).version != e.version;
    if (!stale) return e.time;
  }
  return kNever;
}

void Clocked::handle(const Event& event) {
  if (event.what == What::kKnown) return complete(event.rank, event.time);
  Rank& rank = ranks_[static_cast<std::size_t>(event.rank)];
  switch (event.what) {
    case What::kEnd:
      return end(rank, event.stream, event.time);
    case What::kTry:
      line(rank, event.stream).tried = false;
      return look(rank, event.stream);
    default:
      course(rank).woken = false;
      return walk(rank);
  }
}

void Clocked::drain() {
  while (!todo_.empty()) {
    const Place at = todo_.back();
    todo_.pop_back();
    look(ranks_[static_cast<std::size_t>(at.rank)], at.stream);
  }
}

// The calls that begin at this instant, by key.
void Clocked::hand_over() {
  std::sort(starts_.begin(), starts_.end(), [](const Start& a, const Start& b) {
    return std::tie(a.key, a.flow.begin, a.flow.id) < std::tie(b.key, b.flow.begin, b.flow.id);
  });
  for (Start& start : starts_) {
    start.flow.clock = now_;
    if (const auto known = network_.start(start.flow)) schedule(*known, What::kKnown, start.flow.id, 0, 0);
  }
  starts_.clear();
}

Timeline Clocked::run() {
  for (Rank& rank : ranks_) walk(rank);
  double network = kNever;
  for (;;) {
    drain();
    if (remaining_ == 0) break;
    const double own = next_own();
    if (!starts_.empty() && own > now_) {
      hand_over();
      network = network_.next_event();
      continue;
    }
    if (own == kNever && network == kNever) deadlock();
    if (own <= network) {
      now_ = std::max(now_, own);
      const Event event = events_.top();
      events_.pop();
      handle(event);
      continue;
    }
    const auto completion = network_.advance();
    network = network_.next_event();
    if (!completion) continue;
    now_ = std::max(now_, completion->end);
    complete(completion->id, completion->end);
  }
  return results();
}

}  // namespace wt::exec
