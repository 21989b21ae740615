#include "net/replay/replay.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/time.h"

namespace wt::net::replay {

Replay::Replay(Factory factory, PlanOf plan_of, const Options& options, Over over)
    : factory_(std::move(factory)), plan_of_(std::move(plan_of)), options_(options), over_(std::move(over)) {
  if (!(options_.tolerance >= 0 && options_.tolerance < 1)) fail("replay: tolerance is ", options_.tolerance, "; at least 0 and less than 1 needed");
  new_node();
}

double Replay::now() const { return seconds(now_); }

std::int32_t Replay::new_node() {
  if (nodes_.size() >= INT32_MAX) fail("replay: too many different patterns to remember");
  nodes_.emplace_back();
  return static_cast<std::int32_t>(nodes_.size()) - 1;
}

std::optional<double> Replay::start(const Flow& flow) {
  const std::int32_t plan = plan_of_(flow);
  if (plan < 0) return flow.begin + flow.seconds;
  pending_.push({std::max(now_, picoseconds(flow.begin)), plan, orders_++, flow});
  return std::nullopt;
}

Time Replay::next_end() const {
  if (!open_) return kForever;
  if (inside_) {
    const Time next = inside_->next();
    return next == kForever ? kForever : std::max(now_, begin_ + next);
  }
  const Node& node = nodes_[static_cast<std::size_t>(node_)];
  if (node.ends != kUnknown) return std::max(now_, begin_ + node.end);
  return pending_.empty() || match(pending_.top()).node == kUnknown ? now_ : kForever;
}

double Replay::next_event() const {
  const Time next = std::min(next_start(), next_end());
  return next == kForever ? kNever : seconds(next);
}

std::optional<Completion> Replay::advance() {
  const Time start = next_start(), end = next_end();
  if (start == kForever && end == kForever) return std::nullopt;
  if (!open_) {
    open(start);
  } else if (end <= start && inside_) {
    now_ = end;
    const std::optional<End> said = inside_->advance();
    if (!said) return std::nullopt;
    if (episode_[static_cast<std::size_t>(said->launch)].delivered < 0) return deliver_simulated(*said);
    check(*said);
  } else if (end <= start && nodes_[static_cast<std::size_t>(node_)].ends != kUnknown) {
    now_ = end;
    return deliver_remembered();
  } else if (inside_) {
    simulate_start();
  } else if (const Match found = pending_.empty() ? Match{} : match(pending_.top()); found.node != kUnknown) {
    remember_start(found);
  } else {
    simulate();
  }
  return std::nullopt;
}

void Replay::open(Time at) {
  now_ = at;
  open_ = true;
  begin_ = at;
  node_ = 0;
  episode_.clear();
  shortest_ = kForever;
  shift_ = worst_ = 0;
  answered_ = 0;
  ++report_.episodes;
}

// The nearest remembered start of the plan at this point, if it is near enough.
Replay::Match Replay::match(const Pending& p) const {
  const auto fastest = fastest_.find(p.plan);
  if (fastest == fastest_.end()) return {};
  const Time offset = p.begin - begin_;
  const auto allowed = static_cast<Time>(options_.tolerance * static_cast<double>(std::min(shortest_, fastest->second)));
  Match best;
  const auto look = [&](const auto& branch) {
    const auto& [node, plan, at] = branch.first;
    if (node != node_ || plan != p.plan) return;
    const Time shift = std::abs(at - offset);
    if (shift <= allowed && (best.node == kUnknown || shift < best.shift)) best = {branch.second, shift};
  };
  const auto above = branches_.lower_bound({node_, p.plan, offset});
  if (above != branches_.end()) look(*above);
  if (above != branches_.begin()) look(*std::prev(above));
  return best;
}

std::int32_t Replay::launch_next() {
  const Pending& p = pending_.top();
  now_ = p.begin;
  episode_.push_back({p.flow, p.plan, now_ - begin_, -1});
  pending_.pop();
  ++report_.flows;
  ++flying_;
  return static_cast<std::int32_t>(episode_.size()) - 1;
}

void Replay::remember_start(const Match& found) {
  const std::int32_t launch = launch_next();
  node_ = found.node;
  shortest_ = std::min(shortest_, fastest_.at(episode_[static_cast<std::size_t>(launch)].plan));
  if (found.shift == 0) return;
  shift_ += found.shift;
  ++report_.shifted;
  report_.shift_total += seconds(found.shift);
  report_.shift_max = std::max(report_.shift_max, seconds(found.shift));
}

void Replay::simulate_start() {
  const std::int32_t number = launch_next();
  const Launch& launch = episode_[static_cast<std::size_t>(number)];
  const std::int32_t next = new_node();
  branches_[{node_, launch.plan, launch.offset}] = next;
  node_ = next;
  inside_->play(number, launch.offset, launch.flow);
}

// A network of its own for this episode, brought to where the episode stands.
void Replay::simulate() {
  inside_.emplace(factory_());
  if (answered_ > 0) ++report_.left;
  std::vector<End> late;  // memory has them for later than they are
  for (std::size_t i = 0; i < episode_.size(); ++i) {
    const Launch& launch = episode_[i];
    while (inside_->next() <= launch.offset) {
      const std::optional<End> said = inside_->advance();
      if (!said) continue;
      if (episode_[static_cast<std::size_t>(said->launch)].delivered < 0)
        late.push_back(*said);
      else
        check(*said);
    }
    inside_->play(static_cast<std::int32_t>(i), launch.offset, launch.flow);
  }
  for (const End& end : late) inside_->put_back(end);
}

// The true end of a launch that was answered from memory.
void Replay::check(const End& end) {
  const double off = seconds(std::abs(end.at - episode_[static_cast<std::size_t>(end.launch)].delivered));
  ++report_.checked;
  report_.checked_max = std::max(report_.checked_max, off);
  checks_ += off;
}

Completion Replay::deliver_remembered() {
  const Node node = nodes_[static_cast<std::size_t>(node_)];
  shift_ += now_ - (begin_ + node.end);
  const Time error = shift_ + node.error, took = now_ - begin_ - episode_[static_cast<std::size_t>(node.ends)].offset;
  worst_ = std::max(worst_, error);
  errors_ += seconds(error);
  error_shares_ += took > 0 ? static_cast<double>(error) / static_cast<double>(took) : 0.0;
  report_.error_max = std::max(report_.error_max, seconds(error));
  ++remembered_;
  ++answered_;
  return deliver(node.ends, node.after);
}

Completion Replay::deliver_simulated(const End& end) {
  const Time at = now_ - begin_;
  shift_ += at - end.at;
  worst_ = std::max(worst_, shift_);
  const std::int32_t next = new_node();
  nodes_[static_cast<std::size_t>(node_)] = {end.launch, next, kUnknown, at, shift_};
  const Launch& launch = episode_[static_cast<std::size_t>(end.launch)];
  Time& fastest = fastest_.try_emplace(launch.plan, kForever).first->second;
  fastest = std::min(fastest, at - launch.offset);
  return deliver(end.launch, next);
}

Completion Replay::deliver(std::int32_t number, std::int32_t after) {
  Launch& launch = episode_[static_cast<std::size_t>(number)];
  launch.delivered = now_ - begin_;
  const double took = seconds(launch.delivered - launch.offset);
  Launches& of = launches_[launch.plan];
  ++of.count;
  of.total += took;
  of.longest = std::max(of.longest, took);
  last_end_ = std::max({last_end_, seconds(now_), launch.flow.begin});  // a begin may lie a fraction of a picosecond above
  const Completion completion{launch.flow.id, last_end_};
  node_ = after;
  if (--flying_ == 0) close();
  return completion;
}

void Replay::close() {
  Node& node = nodes_[static_cast<std::size_t>(node_)];
  if (inside_) {
    while (inside_->next() != kForever)  // what memory had over may be on its way inside still
      if (const auto said = inside_->advance()) check(*said);
    node.pattern = static_cast<std::int32_t>(uses_.size());
    uses_.push_back(0);
    if (over_) over_(inside_->network(), node.pattern);
    inside_.reset();
  } else {
    ++report_.replayed;
    report_.skipped += static_cast<std::int64_t>(episode_.size());
  }
  ++uses_[static_cast<std::size_t>(node.pattern)];
  report_.error_total += seconds(worst_);
  open_ = false;
}

Report Replay::report() const {
  Report r = report_;
  r.patterns = static_cast<std::int64_t>(uses_.size());
  r.nodes = static_cast<std::int64_t>(nodes_.size());
  if (remembered_ > 0) {
    r.error_mean = errors_ / static_cast<double>(remembered_);
    r.error_share = error_shares_ / static_cast<double>(remembered_);
  }
  if (r.checked > 0) r.checked_mean = checks_ / static_cast<double>(r.checked);
  return r;
}

}  // namespace wt::net::replay
