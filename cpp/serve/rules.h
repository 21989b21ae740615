// The rules by which engines choose what the next pass computes, as windtunnel.serving.engines has them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "serve/lane.h"

namespace wt::serve {

// windtunnel.serving.engine.ServeEngine, as far as a scheduler reads it.
struct Limits {
  Number step_tokens = 0, chunk = 0, running = 0, block = 1, polls = 1;
  bool reserves_prompt = false, keeps_blocks = false, ahead = true;
  bool cuts_prompts = true;  // else a prompt that the pass has no room for waits, unless it is longer than any pass
  // SGLang's ratio at the start and its floor, by how much it falls a pass, output tokens that an estimate counts at most, passes
  // for which a retraction makes room, passes between two looks at waiting requests.
  double start = 1.0, floor = 0.0, fall = 0.0;
  Number clip = 0, retract_ahead = 0, look = 0;
};

constexpr Number kBeyond = Number{1} << 30;  // passes that need no limit

class Rules {
 public:
  explicit Rules(const Limits& limits) : limits_(limits) {}
  virtual ~Rules() = default;
  Rules(const Rules&) = delete;
  Rules& operator=(const Rules&) = delete;

  // The next pass, with its blocks taken; empty if nothing can run.
  [[nodiscard]] virtual Step next_step(Lane& lane) = 0;
  // Tokens beyond its computed ones for which a decoding request has blocks in a pass.
  [[nodiscard]] virtual Number reserve(const Lane& lane) const { return 1 + lane.drafts.drafts; }
  // How often a pass of one token for every running request would be chosen again if nothing ends and nothing comes.
  [[nodiscard]] virtual Number repeats(const Lane&) const { return kBeyond; }
  // Books so many more passes that decode.
  virtual void fall(Number) {}
  [[nodiscard]] virtual bool trims() const { return true; }

 protected:
  const Limits& limits_;
};

// The rules of "vllm", "sglang" or "trtllm"; fails for another name.
std::unique_ptr<Rules> rules_of(const std::string& name, const Limits& limits);

// Sum of a column in the order in which numpy adds it.
double pairwise_sum(const double* values, std::size_t count);

// Gives each request of a pass the blocks of its computed tokens, its count and `more`; false, and nothing, where they lack.
bool grow_all(Lane& lane, const Step& step, Number more);

}  // namespace wt::serve
