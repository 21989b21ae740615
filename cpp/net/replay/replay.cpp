#include "net/replay/replay.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "base/time.h"

namespace wt::net::replay {

namespace {

constexpr std::int32_t kMostAgain = 4;

}  // namespace

Replay::Replay(Factory factory, PlanOf plan_of, const Options& options, Over over, LinksOf links_of, LinksOf back_of,
               Exposed exposed)
    : factory_(std::move(factory)),
      plan_of_(std::move(plan_of)),
      links_of_(std::move(links_of)),
      back_of_(std::move(back_of)),
      exposed_(std::move(exposed)),
      against_(options.against),
      over_(std::move(over)),
      memory_(options.tolerance) {
  if (!(options.tolerance >= 0 && options.tolerance < 1))
    fail("replay: tolerance is ", options.tolerance, "; at least 0 and less than 1 needed");
}

std::optional<double> Replay::start(const Flow& flow) {
  const std::int32_t plan = plan_of_(flow);
  if (plan < 0) return flow.begin + flow.seconds;
  pending_.push({std::max(now_, picoseconds(flow.begin)), plan, orders_++, flow});
  return std::nullopt;
}

// When the episode ends something, or, where memory does not know what comes after the starts that it has, when it is to be left.
Time Replay::next_end(const Episode& e) const {
  if (e.inside) {
    const Time next = e.inside->next();
    return next == kForever ? kForever : std::max(now_, e.begin + next);
  }
  const Memory::Node& node = memory_[e.node];
  const Time next = node.ends != Memory::kNone ? node.end : node.quiet + memory_.allowed(e.shortest) + 1;
  return std::max(now_, e.begin + next);
}

double Replay::next_event() const {
  Time next = next_start();
  for (const auto& [id, e] : live_) next = std::min(next, next_end(e));
  return next == kForever ? kNever : seconds(next);
}

std::optional<Completion> Replay::advance() {
  Time first = kForever;
  auto of = live_.end();
  for (auto e = live_.begin(); e != live_.end(); ++e)
    if (const Time end = next_end(e->second); end < first) first = end, of = e;
  if (!exposures_.empty() && exposures_.back() <= std::min(first, next_start())) {
    now_ = std::max(now_, exposures_.back());
    exposures_.pop_back();
    for (auto& [id, e] : live_)
      if (!e.exposed && std::ranges::any_of(e.flying, [&](std::int32_t f) { return exposed_(e.launch(f).plan, now_); })) expose(e);
    return std::nullopt;
  }
  if (next_start() < first) {
    take_start();
    return std::nullopt;
  }
  if (of == live_.end()) return std::nullopt;
  now_ = first;
  return advance(of);
}

std::optional<Completion> Replay::advance(Live::iterator of) {
  Episode& e = of->second;
  if (!e.inside) {
    if (memory_[e.node].ends != Memory::kNone) return deliver_remembered(of);
    simulate(e);
    return std::nullopt;
  }
  const std::optional<End> said = e.inside->advance();
  if (!said) return std::nullopt;
  if (e.launch(said->launch).delivered < 0) return deliver_simulated(of, *said);
  check(e, *said);
  return std::nullopt;
}

std::span<const std::int32_t> Replay::links_of(std::int32_t plan) const {
  static constexpr std::int32_t kOne[] = {0};
  return links_of_ ? links_of_(plan) : std::span<const std::int32_t>(kOne);
}

void Replay::take_start() {
  const Pending p = pending_.top();
  pending_.pop();
  now_ = p.begin;
  const auto at = episode_of(p.plan);
  Episode& e = at->second;
  if (!e.exposed && exposed_ && exposed_(p.plan, now_)) expose(e);
  const auto number = static_cast<std::int32_t>(e.launches.size());
  const Time offset = now_ - e.begin;
  const Memory::Match found = e.inside ? Memory::Match{} : memory_.match(e.node, p.plan, offset, e.shortest);
  if (!e.inside && found.node == Memory::kNone) simulate(e);
  e.launches.push_back({p.flow, p.plan, offset});
  e.events.push_back(number);
  e.flying.push_back(number);
  for (const std::int32_t l : links_of(p.plan)) {
    ++links_[static_cast<std::size_t>(l)].users;
    links_[static_cast<std::size_t>(l)].episode = at->first;
  }
  ++report_.flows;
  if (against_ > 0 && back_of_) meet(at, p.plan, 1);
  if (e.inside) {
    e.node = memory_.add_start(e.node, p.plan, offset);
    e.inside->play(number, offset, p.flow);
    ++report_.played;
    return;
  }
  e.node = found.node;
  e.shortest = std::min(e.shortest, memory_.fastest(p.plan));
  if (found.shift == 0) return;
  e.shift += found.shift;
  ++report_.shifted;
  report_.shift_total += seconds(found.shift);
  report_.shift_max = std::max(report_.shift_max, seconds(found.shift));
}

bool Replay::oppose(std::int32_t a, std::int32_t b) {
  const auto [at, fresh] = oppose_.try_emplace((static_cast<std::int64_t>(std::min(a, b)) << 32) | std::max(a, b), false);
  if (!fresh) return at->second;
  const auto common = [](std::span<const std::int32_t> x, std::span<const std::int32_t> y) {  // both by rising number
    for (std::size_t i = 0, k = 0; i < x.size() && k < y.size();) {
      if (x[i] == y[k]) return true;
      x[i] < y[k] ? ++i : ++k;
    }
    return false;
  };
  return at->second = common(links_of_(a), back_of_(b)) || common(links_of_(b), back_of_(a));
}

void Replay::meet(Live::iterator of, std::int32_t plan, std::int32_t change) {
  const auto count = [&](Launch& launch) {
    if (launch.against == 0) launch.since = now_;
    launch.against += change;
    if (launch.against == 0) launch.beside += now_ - launch.since;
  };
  for (auto& [id, other] : live_)
    if (id != of->first)
      for (const std::int32_t f : other.flying)
        if (Launch& launch = other.launch(f); oppose(plan, launch.plan)) {
          if (launch.against + change >= 0) count(launch);
          if (change > 0) count(of->second.launches.back());
        }
}

Replay::Live::iterator Replay::episode_of(std::int32_t plan) {
  auto found = std::find_if(live_.begin(), live_.end(), [](const auto& e) { return e.second.wide; });
  for (const std::int32_t l : links_of(plan)) {
    if (static_cast<std::size_t>(l) >= links_.size()) links_.resize(static_cast<std::size_t>(l) + 1);
    const Link& link = links_[static_cast<std::size_t>(l)];
    if (link.users == 0) continue;
    const auto other = live_.find(link.episode);
    if (found == live_.end())
      found = other;
    else if (other != found)
      found = join(found, other);
  }
  if (found != live_.end()) {
    Episode& e = found->second;
    // made by join(), which leaves the walk for when all are together
    if (!e.inside && e.node == Memory::kNone && e.exposed) {
      expose(e);
    } else if (!e.inside && e.node == Memory::kNone && !walk(memory_, e, false)) {
      walk(memory_, e, true);
      simulate(e);
      e.wide = ++e.again >= kMostAgain;
    }
    return found;
  }
  ++report_.episodes;
  Episode e;
  e.begin = now_;
  return live_.emplace(episodes_++, std::move(e)).first;
}

Replay::Live::iterator Replay::join(Live::iterator a, Live::iterator b) {
  Episode both = merged(a->second, b->second);
  both.node = Memory::kNone;
  live_.erase(a);
  live_.erase(b);
  const auto at = live_.emplace(episodes_++, std::move(both)).first;
  for (const std::int32_t f : at->second.flying)
    for (const std::int32_t l : links_of(at->second.launch(f).plan)) links_[static_cast<std::size_t>(l)].episode = at->first;
  --report_.episodes;
  ++report_.joined;
  return at;
}

void Replay::expose_from(std::vector<Time> times) {
  exposures_ = std::move(times);
  std::ranges::sort(exposures_, std::greater<>());
}

void Replay::expose(Episode& e) {
  e.exposed = true;
  if (!e.inside) simulate(e);
  e.node = memory_.add_root();
}

// A network of its own for this episode, brought to where the episode stands.
void Replay::simulate(Episode& e) {
  e.inside.emplace(factory_(e.begin));
  ++report_.simulations;
  std::vector<End> late;  // memory has them for later than they are
  const auto catch_up = [&](Time to) {
    while (e.inside->next() <= to) {
      const std::optional<End> said = e.inside->advance();
      if (!said) continue;
      if (e.launch(said->launch).delivered < 0)
        late.push_back(*said);
      else
        check(e, *said);
    }
  };
  for (std::size_t i = 0; i < e.launches.size(); ++i) {
    const Launch& launch = e.launches[i];
    catch_up(launch.offset);
    e.inside->play(static_cast<std::int32_t>(i), launch.offset, launch.flow);
  }
  if (!e.launches.empty()) catch_up(now_ - e.begin);
  report_.played += static_cast<std::int64_t>(e.launches.size());
  for (const End& end : late) e.inside->put_back(end);
}

// The true end of a launch that was answered already, maybe from memory.
void Replay::check(const Episode& e, const End& end) {
  if (!e.launch(end.launch).remembered) return;
  const double off = seconds(std::abs(end.at - e.launch(end.launch).delivered));
  ++report_.checked;
  report_.checked_max = std::max(report_.checked_max, off);
  checks_ += off;
}

Completion Replay::deliver_remembered(Live::iterator of) {
  Episode& e = of->second;
  const Memory::Node node = memory_[e.node];
  e.shift += now_ - (e.begin + node.end);
  e.launch(node.ends).remembered = true;
  return deliver(of, node.ends, node.after, e.shift + node.error);
}

Completion Replay::deliver_simulated(Live::iterator of, const End& end) {
  Episode& e = of->second;
  const Time at = now_ - e.begin;
  e.shift += at - end.at;
  const Launch& launch = e.launch(end.launch);
  memory_.took(launch.plan, at - launch.offset);
  return deliver(of, end.launch, memory_.add_end(e.node, end.launch, at, e.shift), e.shift);
}

Completion Replay::deliver(Live::iterator of, std::int32_t number, std::int32_t after, Time error) {
  Episode& e = of->second;
  Launch& launch = e.launch(number);
  launch.delivered = now_ - e.begin;
  e.events.push_back(~number);
  e.node = after;
  const double took = seconds(launch.delivered - launch.offset);
  if (against_ > 0 && back_of_) {
    meet(of, launch.plan, -1);
    if (launch.against > 0) launch.beside += now_ - launch.since;
    report_.against_total += seconds(launch.beside);
    error += static_cast<Time>(against_ * static_cast<double>(launch.beside));
  }
  e.worst = std::max(e.worst, error);
  errors_ += seconds(error);
  error_shares_ += took > 0 ? seconds(error) / took : 0.0;
  report_.error_max = std::max(report_.error_max, seconds(error));
  Launches& ofplan = launches_[launch.plan];
  ++ofplan.count;
  ofplan.total += took;
  ofplan.longest = std::max(ofplan.longest, took);
  for (const std::int32_t l : links_of(launch.plan)) --links_[static_cast<std::size_t>(l)].users;
  last_end_ = std::max({last_end_, seconds(now_), launch.flow.begin});  // a begin may lie a fraction of a picosecond above
  const Completion completion{launch.flow.id, last_end_};
  std::erase(e.flying, number);
  if (e.flying.empty()) {
    close(e);
    live_.erase(of);
  }
  return completion;
}

void Replay::close(Episode& e) {
  if (e.inside) {
    while (e.inside->next() != kForever)  // what memory had over may be on its way inside still
      if (const auto said = e.inside->advance()) check(e, *said);
    memory_.add_pattern(e.node, static_cast<std::int32_t>(uses_.size()));
    uses_.push_back(0);
    if (over_) over_(e.inside->network(), memory_[e.node].pattern);
  } else {
    ++report_.replayed;
    report_.skipped += static_cast<std::int64_t>(e.launches.size());
  }
  ++uses_[static_cast<std::size_t>(memory_[e.node].pattern)];
  closed_.push_back({memory_[e.node].pattern, e.begin});
  report_.error_total += seconds(e.worst);
}

Report Replay::report() const {
  Report r = report_;
  r.patterns = static_cast<std::int64_t>(uses_.size());
  r.nodes = static_cast<std::int64_t>(memory_.size());
  if (r.flows > 0) {
    r.error_mean = errors_ / static_cast<double>(r.flows);
    r.error_share = error_shares_ / static_cast<double>(r.flows);
  }
  if (r.checked > 0) r.checked_mean = checks_ / static_cast<double>(r.checked);
  return r;
}

}  // namespace wt::net::replay
