// Simulated episodes, as a tree of events.
//
// A node stands for all that has happened in an episode so far: starts (plan and time since the episode's begin) and completions
// (which launch, when). What comes next is either the one completion that was found to come next if nothing starts before it, or
// one of the starts that came there.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "net/replay/inside.h"

namespace wt::net::replay {

class Memory {
 public:
  static constexpr std::int32_t kNone = -1;

  struct Node {
    std::int32_t ends = kNone;     // launch that ends next if nothing starts before, by order of starts
    std::int32_t after = kNone;    // node behind that
    std::int32_t pattern = kNone;  // where the episode is over
    Time end = 0;
    Time error = 0;  // what `end` may be off
    Time quiet = 0;  // nothing ends before
  };
  struct Match {
    std::int32_t node = kNone;
    Time shift = 0;
  };

  explicit Memory(double tolerance) : tolerance_(tolerance), nodes_(1) {}

  [[nodiscard]] const Node& operator[](std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  // The shortest that a plan has taken; 0 if it has not been simulated.
  [[nodiscard]] Time fastest(std::int32_t plan) const;
  // Times closer than this count as the same in an episode whose shortest plan takes `shortest`.
  [[nodiscard]] Time allowed(Time shortest) const { return static_cast<Time>(tolerance_ * static_cast<double>(shortest)); }
  // The nearest start of the plan remembered at this point, if it is near enough.
  [[nodiscard]] Match match(std::int32_t node, std::int32_t plan, Time at, Time shortest) const;

  std::int32_t add_start(std::int32_t node, std::int32_t plan, Time at);
  std::int32_t add_end(std::int32_t node, std::int32_t launch, Time at, Time error);
  void add_pattern(std::int32_t node, std::int32_t pattern) { nodes_[static_cast<std::size_t>(node)].pattern = pattern; }
  void took(std::int32_t plan, Time time);
  std::int32_t add_root() { return add(); }  // where an episode begins that no other is like

 private:
  std::int32_t add();

  double tolerance_;
  std::vector<Node> nodes_;
  std::map<std::tuple<std::int32_t, std::int32_t, Time>, std::int32_t> branches_;  // node, plan, time of a start -> node behind it
  std::unordered_map<std::int32_t, Time> fastest_;
};

}  // namespace wt::net::replay
