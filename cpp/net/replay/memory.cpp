#include "net/replay/memory.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/check.h"

namespace wt::net::replay {

Time Memory::fastest(std::int32_t plan) const {
  const auto found = fastest_.find(plan);
  return found == fastest_.end() ? 0 : found->second;
}

Memory::Match Memory::match(std::int32_t node, std::int32_t plan, Time at, Time shortest) const {
  const Time most = allowed(std::min(shortest, fastest(plan)));
  Match best;
  const auto look = [&](const auto& branch) {
    const auto& [from, of, when] = branch.first;
    if (from != node || of != plan) return;
    const Time shift = std::abs(when - at);
    if (shift <= most && (best.node == kNone || shift < best.shift)) best = {branch.second, shift};
  };
  const auto above = branches_.lower_bound({node, plan, at});
  if (above != branches_.end()) look(*above);
  if (above != branches_.begin()) look(*std::prev(above));
  return best;
}

std::int32_t Memory::add() {
  if (nodes_.size() >= INT32_MAX) fail("replay: too many different patterns to remember");
  nodes_.emplace_back();
  return static_cast<std::int32_t>(nodes_.size()) - 1;
}

std::int32_t Memory::add_start(std::int32_t node, std::int32_t plan, Time at) {
  const auto known = branches_.find({node, plan, at});
  if (known != branches_.end()) return known->second;
  const std::int32_t next = add();
  branches_[{node, plan, at}] = next;
  Node& from = nodes_[static_cast<std::size_t>(node)];
  from.quiet = std::max(from.quiet, at);
  return next;
}

std::int32_t Memory::add_end(std::int32_t node, std::int32_t launch, Time at, Time error) {
  const Node& known = nodes_[static_cast<std::size_t>(node)];
  if (known.ends == launch && known.end == at) return known.after;
  const std::int32_t next = add();
  Node& from = nodes_[static_cast<std::size_t>(node)];
  from.ends = launch;
  from.after = next;
  from.end = at;
  from.error = error;
  return next;
}

void Memory::took(std::int32_t plan, Time time) {
  Time& fastest = fastest_.try_emplace(plan, kForever).first->second;
  fastest = std::min(fastest, time);
}

}  // namespace wt::net::replay
