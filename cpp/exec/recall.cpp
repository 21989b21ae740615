#include "exec/recall.h"

#include <algorithm>
#include <bit>

namespace wt::exec {
namespace {

std::uint64_t hash_of(const std::vector<std::uint64_t>& words) {
  std::uint64_t hash = words.size();
  for (const std::uint64_t word : words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29U;
  }
  return hash;
}

}  // namespace

void Recall::add(double seconds) { key_.push_back(std::bit_cast<std::uint64_t>(seconds)); }

std::int32_t Recall::find(double host) {
  if (2 * known_.size() >= slots_.size()) grow();
  const std::uint64_t hash = hash_of(key_);
  std::size_t slot = hash & (slots_.size() - 1);
  for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
    const Known& known = known_[static_cast<std::size_t>(slots_[slot])];
    if (known.hash == hash && known.count == key_.size() && std::equal(key_.begin(), key_.end(), words_.begin() + known.first))
      break;
  }
  at_ = slots_[slot];
  if (at_ < 0) {
    if (numbers.size() > kMostNumbers || words_.size() > kMostNumbers) return -1;
    at_ = slots_[slot] = static_cast<std::int32_t>(known_.size());
    known_.push_back({hash, static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(key_.size()), -1, 0});
    words_.insert(words_.end(), key_.begin(), key_.end());
    return -1;
  }
  for (std::int32_t one = known_[static_cast<std::size_t>(at_)].outcome; one >= 0;) {
    const Recalled& outcome = outcomes_[static_cast<std::size_t>(one)];
    if (outcome.felt ? host == outcome.host : host <= outcome.host) return one;
    one = outcome.other;
  }
  return -1;
}

std::int32_t Recall::keep(const Recalled& outcome) {
  Known& known = known_[static_cast<std::size_t>(at_)];
  outcomes_.push_back(outcome);
  outcomes_.back().other = known.outcome;
  ++known.outcomes;
  return known.outcome = static_cast<std::int32_t>(outcomes_.size()) - 1;
}

void Recall::grow() {
  slots_.assign(std::max<std::size_t>(64, 2 * slots_.size()), -1);
  for (std::size_t k = 0; k < known_.size(); ++k) {
    std::size_t slot = known_[k].hash & (slots_.size() - 1);
    while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<std::int32_t>(k);
  }
}

}  // namespace wt::exec
