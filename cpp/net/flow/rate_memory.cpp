#include "net/flow/rate_memory.h"

#include <algorithm>

namespace wt::net::flow {

RateMemory::RateMemory(Solver& solver, std::size_t unknowns, std::span<const double> capacity)
    : solver_(solver),
      capacity_(capacity.begin(), capacity.end()),
      weights_(unknowns, 0.0),
      level_(unknowns, 0.0),
      given_(unknowns, 0.0) {
  forget();
}

void RateMemory::count_seconds() {
  sets_[present_].seconds += std::max(0.0, now_ - since_);
  since_ = std::max(since_, now_);
}

void RateMemory::forget() {
  by_weights_.clear();
  sets_.clear();
  const std::vector<double> none(weights_.size(), 0.0);
  sets_.push_back({none, none, std::vector<std::int32_t>(weights_.size(), kOwnBound), 0.0});
  by_weights_.emplace(none, 0);
  present_ = 0;
}

void RateMemory::set_capacity(std::int32_t link, double capacity) {
  settle_meter();
  forget();
  capacity_[index(link)] = capacity;
  solver_.set_capacity(link, capacity);
}

std::size_t RateMemory::find() {
  if (const auto found = by_weights_.find(weights_); found != by_weights_.end()) {
    ++remembered_;
    return found->second;
  }
  if (sets_.size() >= kMost) {
    settle_meter();
    forget();
  }
  Set set{weights_, std::vector<double>(weights_.size()), std::vector<std::int32_t>(weights_.size()), 0.0};
  for (std::size_t c = 0; c < weights_.size(); ++c) solver_.set_weight(static_cast<std::int32_t>(c), weights_[c]);
  solver_.solve();
  for (std::size_t c = 0; c < weights_.size(); ++c) {
    set.level[c] = solver_.level(static_cast<std::int32_t>(c));
    set.stop[c] = solver_.stopped_by(static_cast<std::int32_t>(c));
  }
  by_weights_.emplace(weights_, sets_.size());
  sets_.push_back(std::move(set));
  return sets_.size() - 1;
}

void RateMemory::solve() {
  count_seconds();
  present_ = find();
  moved_.clear();
  const std::vector<double>& level = sets_[present_].level;
  for (std::size_t c = 0; c < level.size(); ++c) {
    if (level[c] == level_[c]) continue;
    moved_.push_back({static_cast<std::int32_t>(c), level_[c]});
    level_[c] = level[c];
  }
}

std::int32_t RateMemory::stopped_by(std::int32_t unknown) const { return sets_[present_].stop[index(unknown)]; }

void RateMemory::settle_meter() {
  count_seconds();
  std::vector<double> load(capacity_.size());
  for (Set& set : sets_) {
    if (!(set.seconds > 0.0)) continue;
    std::ranges::fill(load, 0.0);
    for (std::size_t c = 0; c < set.weight.size(); ++c)
      if (const double rate = set.weight[c] * set.level[c]; rate > 0.0)
        solver_.each_link(static_cast<std::int32_t>(c), [&](std::int32_t l, double demand) { load[index(l)] += demand * rate; });
    for (std::size_t l = 0; l < load.size(); ++l) solver_.meter().add(l, load[l], capacity_[l], set.seconds);
    set.seconds = 0.0;
  }
  for (std::size_t c = 0; c < given_.size(); ++c) {
    if (const double units = given_[c]; units > 0.0)
      solver_.each_link(static_cast<std::int32_t>(c),
                        [&](std::int32_t l, double demand) { solver_.meter().give_back(index(l), demand * units, 0.0, 1.0); });
    given_[c] = 0.0;
  }
}

}  // namespace wt::net::flow
