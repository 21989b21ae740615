#include "exec/book.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/check.h"

namespace wt::exec {

Book::Book(const Program& program, net::Network& network, bool times)
    : program_(program), network_(network), layout_(validate(program)) {
  const Options& options = program.options;
  const auto ranks = static_cast<std::size_t>(layout_.ranks);
  streams_count_ = static_cast<std::size_t>(layout_.streams);
  categories_ = static_cast<std::size_t>(options.categories);
  window_ = static_cast<std::uint32_t>(std::min<std::int64_t>(options.host_window, std::int64_t{1} << 31));
  rates_.assign(ranks, 1.0 - options.compute_tax);
  for (std::size_t r = 0; r < options.taxes.size(); ++r) rates_[r] = 1.0 - options.taxes[r];
  tax_ = std::any_of(rates_.begin(), rates_.end(), [](double rate) { return rate < 1.0; });
  remaining_ = program.instances.tmpl.size();
  states_.resize(remaining_);
  ranks_.resize(ranks);
  streams_.resize(ranks * streams_count_);
  busy_.resize(ranks * streams_count_ * categories_);
  idle_.resize(ranks * (categories_ + 2));
  stretch_.resize(ranks * categories_);
  keys_.resize(layout_.member_start.size() - 1);
  for (std::size_t k = 0; k < keys_.size(); ++k)
    keys_[k].participants = static_cast<std::int32_t>(layout_.member_start[k + 1] - layout_.member_start[k]);
  for (std::size_t p = 0; p < layout_.key_id.size(); ++p)
    keys_[static_cast<std::size_t>(layout_.key_id[p])].name = program.rendezvous.key[p];

  for (std::int32_t r = 0; r < layout_.ranks; ++r) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    rank.index = r;
    rank.first = rank.cursor = rank.low = static_cast<std::int32_t>(program.instances.rank_start[static_cast<std::size_t>(r)]);
    rank.last = static_cast<std::int32_t>(program.instances.rank_start[static_cast<std::size_t>(r) + 1]);
    for (std::int32_t i = rank.first; i < rank.last; ++i) {
      State& s = state(i);
      s.events = row(i) >= 0 ? 1 : program.instances.times[static_cast<std::size_t>(i)] * info(i).size;
      s.first_event = rank.events;
      rank.events += static_cast<std::uint32_t>(s.events);
    }
  }
  lay_out_trails(times);
}

void Book::lay_out_trails(bool times) {
  const Options& options = program_.options;
  std::vector<Rank*> kept;
  std::size_t events = 0;
  const auto keep = [&](bool recorded) {
    for (Rank& rank : ranks_)
      if ((options.record[static_cast<std::size_t>(rank.index)] != 0) == recorded) kept.push_back(&rank), events += rank.events;
  };
  keep(true);
  recorded_ = events;
  if (options.critical_path || times || window_ > 0) keep(false);
  times_.start.resize(events);
  times_.end.resize(events);
  std::size_t at = 0;
  for (Rank* const rank : kept) {
    rank->trail.start = times_.start.data() + at;
    rank->trail.end = times_.end.data() + at;
    at += rank->events;
    if (!options.critical_path) continue;
    rank->trail.before = std::make_unique_for_overwrite<std::uint32_t[]>(rank->events);
    rank->trail.cause = std::make_unique_for_overwrite<Cause[]>(rank->events);
  }
}

void Book::settle_sync(Rank& rank) {
  const State& s = state(rank.sync);
  if (s.end > rank.host.at) rank.host = Host{s.end, s.end, s.last_event, rank.sync, Cause::kHost};
  rank.sync = -1;
}

bool Book::end_part(Rank& rank, std::int32_t i, std::int32_t key, double end) {
  State& s = state(i);
  const double begin = keys_[static_cast<std::size_t>(key)].begin;
  if (end > s.end || (end == s.end && begin < s.transfer)) {
    s.end = end;
    s.transfer = begin;
    s.binding = key;
  }
  if (--s.parts_left > 0) return false;
  const auto at = static_cast<std::size_t>(row(i));
  const int on = program_.rendezvous.stream[at];
  Stream& own = streams_of_rank(rank)[on];
  own.free = s.end;
  own.last_event = s.first_event;
  busy(rank, on, program_.rendezvous.cat_wait[at]).add(s.transfer - s.begin);
  busy(rank, on, program_.rendezvous.cat_transfer[at]).add(s.end - s.transfer);
  if (rank.trail.end) rank.trail.end[s.first_event] = s.end;
  return true;
}

Book::Gate Book::gate_of(const Rank& rank, std::int32_t i) const {
  const Instances& in = program_.instances;
  Gate gate{0.0, -1};
  for (auto w = in.wait_start[static_cast<std::size_t>(i)]; w < in.wait_start[static_cast<std::size_t>(i) + 1]; ++w) {
    const std::int32_t source = rank.first + in.waits[static_cast<std::size_t>(w)];
    if (state(source).end > gate.at) gate = {state(source).end, source};
  }
  return gate;
}

// Stream 0 was idle because of an instance: a rendezvous is split where its transfer began.
void Book::charge(Rank& rank, double from, double to, std::int32_t instance) {
  const State& cause = state(instance);
  if (row(instance) < 0) {
    idle(rank, static_cast<std::size_t>(cause.category)).add(to - from);
    return;
  }
  const auto at = static_cast<std::size_t>(row(instance));
  const double split = std::clamp(cause.transfer, from, to);
  idle(rank, static_cast<std::size_t>(program_.rendezvous.cat_wait[at])).add(split - from);
  idle(rank, static_cast<std::size_t>(program_.rendezvous.cat_transfer[at])).add(to - split);
}

// Stream 0 was idle because of the host; while the host was itself held by an instance, that instance is the cause.
void Book::charge_host(Rank& rank, double from, double to, const Host& host) {
  if (host.base_instance >= 0 && host.base_at > from) {
    const double split = std::min(host.base_at, to);
    charge(rank, from, split, host.base_instance);
    from = split;
  }
  idle(rank, categories_).add(to - from);
}

void Book::deadlock() const {
  std::ostringstream text;
  text << "deadlock: no rank can go on";
  int listed = 0;
  for (const Rank& rank : ranks_) {
    for (std::int32_t i = rank.first; i < rank.last && listed < 8; ++i) {
      const State& s = state(i);
      if (s.status != Status::kPosted) continue;
      const auto at = static_cast<std::size_t>(row(i));
      for (auto p = static_cast<std::size_t>(program_.rendezvous.part_start[at]);
           p < static_cast<std::size_t>(program_.rendezvous.part_start[at + 1]); ++p) {
        const auto id = static_cast<std::size_t>(layout_.key_id[p]);
        if (keys_[id].posted == keys_[id].participants) continue;
        text << "; rank " << rank.index << ", instance " << i - rank.first << " waits at key " << keys_[id].name << " ("
             << keys_[id].posted << " of " << keys_[id].participants << " have posted";
        for (auto m = static_cast<std::size_t>(layout_.member_start[id]);
             m < static_cast<std::size_t>(layout_.member_start[id + 1]); ++m) {
          const Member& member = layout_.members[m];
          if (state(member.instance).status < Status::kPosted)
            text << "; missing: rank " << member.rank << ", instance "
                 << member.instance - ranks_[static_cast<std::size_t>(member.rank)].first;
        }
        text << ")";
        ++listed;
      }
      break;  // the first one of each rank says enough
    }
  }
  throw Error(text.str());
}

Timeline Book::results() {
  Timeline out;
  const std::size_t n = states_.size();
  out.streams = layout_.streams;
  out.begin.resize(n);
  out.end.resize(n);
  out.transfer.resize(n);
  out.host.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    out.begin[i] = states_[i].begin;
    out.end[i] = states_[i].end;
    out.transfer[i] = states_[i].transfer;
    out.host[i] = states_[i].host.at;
    out.ops += states_[i].events;
  }
  for (Rank& rank : ranks_) {
    if (rank.sync >= 0) settle_sync(rank);
    double end = 0.0;
    for (std::int32_t i = rank.first; i < rank.last; ++i) end = std::max(end, state(i).end);
    out.rank_end.push_back(end);
    out.host_end.push_back(rank.host.at);
    out.makespan = std::max(out.makespan, end);
  }
  for (const Rank& rank : ranks_) idle(rank, categories_ + 1).add(out.makespan - streams_of_rank(rank)[0].free);
  const auto values = [](const std::vector<Sum>& sums) {
    std::vector<double> v(sums.size());
    std::transform(sums.begin(), sums.end(), v.begin(), [](const Sum& s) { return s.value(); });
    return v;
  };
  out.busy = values(busy_);
  out.idle = values(idle_);
  out.stretch = values(stretch_);
  if (program_.options.critical_path) out.path = critical_path(out.makespan);
  times_.start.resize(recorded_);
  times_.end.resize(recorded_);
  out.record = std::move(times_);
  return out;
}

}  // namespace wt::exec
