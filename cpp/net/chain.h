// A network whose calls have others behind them: a call that is over launches the one that follows its key, and ends with that.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

#include "base/check.h"
#include "net/network.h"

namespace wt::net {

class Chain final : public Network {
 public:
  Chain(Network& network, std::span<const std::int64_t> key, std::span<const std::int64_t> next) : network_(network) {
    if (key.size() != next.size()) fail("follow_key has ", key.size(), " entries, follow_next ", next.size());
    for (std::size_t i = 0; i < key.size(); ++i)
      if (!next_.emplace(key[i], next[i]).second) fail("two calls follow key ", key[i]);
  }

  std::optional<double> start(const Flow& flow) override {
    const auto found = next_.find(flow.key);
    if (found == next_.end()) return network_.start(flow);
    const auto end = network_.start(flow);
    if (end) return follow({flow.id, *end}, found->second);
    first_.emplace(flow.id, found->second);
    return std::nullopt;
  }
  [[nodiscard]] double next_event() const override { return network_.next_event(); }
  std::optional<Completion> advance() override {
    const auto completion = network_.advance();
    if (!completion) return std::nullopt;
    const auto found = first_.find(completion->id);
    if (found == first_.end()) return completion;
    const std::int64_t key = found->second;
    first_.erase(found);
    const auto end = follow(*completion, key);
    return end ? std::optional<Completion>({completion->id, *end}) : std::nullopt;
  }

 private:
  std::optional<double> follow(const Completion& of, std::int64_t key) { return network_.start({of.id, key, of.end, 0.0}); }

  Network& network_;
  std::unordered_map<std::int64_t, std::int64_t> next_;
  std::unordered_map<std::int32_t, std::int64_t> first_;  // by id of a call in flight: what follows
};

}  // namespace wt::net
