// Served requests, by hand: blocks that are shared and taken, passes that a scheduler chooses, what they cost.
#include <vector>

#include "serve/run.h"
#include "tests/check.h"

namespace {

using wt::serve::BlockNames;
using wt::serve::Load;
using wt::serve::Number;
using wt::serve::Outcome;
using wt::serve::PagedCache;
using wt::serve::Passing;
using wt::serve::PassTimes;
using wt::serve::Setting;

// A pass takes a second for each token, whatever it reads.
void price_tokens(PassTimes& times) {
  times.rows = {{1.0, 64.0}, {1.0, 64.0}};
  times.heads = {{1.0}, {0.0}};
}

struct Served {
  std::vector<Number> prompt, output;
  std::vector<double> arrival;
  Setting setting;

  Served(std::vector<Number> prompts, std::vector<Number> outputs, Number blocks)
      : prompt(std::move(prompts)), output(std::move(outputs)), arrival(prompt.size(), 0.0) {
    setting.rules = "vllm";
    setting.limits.step_tokens = 16;
    setting.limits.running = 4;
    setting.limits.block = 4;
    setting.limits.reserves_prompt = true;
    setting.run = 128;
    setting.blocks = blocks;
    setting.record = true;
  }

  Outcome run() const {
    Load load;
    load.prompt = std::span<const Number>(prompt);
    load.output = std::span<const Number>(output);
    load.arrival = std::span<const double>(arrival);
    PassTimes times;
    price_tokens(times);
    return std::move(wt::serve::run(setting, times, {load}, {1}).front());
  }
};

}  // namespace

TEST(a_prompt_is_a_pass_and_its_further_tokens_are_one_run) {
  const Outcome out = Served({8}, {4}, 8).run();
  NEAR(out.first[0], 8.0);
  NEAR(out.last[0], 11.0);
  CHECK(out.steps == 4 && out.log.size() == 2 && out.log[1].passes == 3 && out.log[1].tokens == 3);
  NEAR(out.prompts, 8.0);
  NEAR(out.peak, 3.0 / 8.0);
}

TEST(a_prompt_beyond_the_budget_is_cut_beside_tokens) {
  const Outcome out = Served({4, 20}, {3, 1}, 16).run();
  CHECK(out.log.size() == 3);
  CHECK(out.log[0].tokens == 16 && out.log[1].tokens == 1 + 8 && out.log[2].tokens == 1);
  NEAR(out.first[0], 16.0);
  NEAR(out.first[1], 25.0);
  NEAR(out.last[0], 26.0);
}

TEST(the_last_request_gives_up_its_blocks_where_they_lack) {
  const Outcome out = Served({8, 8}, {3, 2}, 5).run();
  CHECK(out.preempted == 1 && out.losses[1] == 1 && out.losses[0] == 0);
  CHECK(out.recomputed == 8 && out.reused[1] == 0);
  NEAR(out.first[1], 16.0);
  NEAR(out.last[0], 18.0);
  NEAR(out.last[1], 27.0);
}

TEST(requests_that_can_never_run_are_an_error) { THROWS(Served({40}, {1}, 2).run(), "left behind"); }

TEST(a_scheduler_without_a_name_is_an_error) {
  Served served({8}, {1}, 8);
  served.setting.rules = "another";
  THROWS(served.run(), "another");
}

TEST(shared_blocks_stay_and_the_longest_unused_are_taken_first) {
  PagedCache cache(6, 4, 3);
  const std::vector<Number> groups{7, 8};
  const BlockNames names{groups.data(), 2, 4, 0};
  CHECK(cache.grow(0, 16));
  cache.name(0, names, 16);
  cache.release(0, 16);
  cache.check();
  CHECK(cache.available() == 6 && cache.match(names) == 4);
  cache.attach(1, names, 2);
  cache.check();
  CHECK(cache.available() == 4 && cache.held[1] == 2);
  CHECK(cache.grow(2, 12) && !cache.grow(2, 24));  // the last block of the prompt goes
  cache.check();
  CHECK(cache.match(names) == 3);
  cache.release(1, 0);
  cache.release(2, 0);
  cache.check();
  CHECK(cache.available() == 6);
}

TEST(prompts_of_like_lengths_are_asked_for_once) {
  PassTimes times;
  price_tokens(times);
  times.kinds.resize(1);
  times.kinds[0].layers = 2.0;
  times.kinds[0].attends = true;
  int asked = 0;
  const wt::serve::PromptPrice price = [&](Number kind, const Passing& pass) {
    ++asked;
    CHECK(kind == 0 && pass.chunks == 1);
    return 0.5;
  };
  times.ask(&price);
  NEAR(times.seconds({16, 1, 136.0, 0, 0.0, 0}, 1), 16.0 + 2.0 * 0.5 * 136.0);
  NEAR(times.seconds({16, 1, 137.0, 0, 0.0, 0}, 1), 16.0 + 2.0 * 0.5 * 137.0);
  CHECK(asked == 1);
  static_cast<void>(times.seconds({16, 1, 272.0, 0, 0.0, 0}, 1));
  CHECK(asked == 2);
}

TEST(columns_are_added_in_numpys_order) {
  std::vector<double> values(300);
  for (std::size_t place = 0; place < values.size(); ++place) values[place] = 1.0 / static_cast<double>(place + 3);
  CHECK(wt::serve::pairwise_sum(values.data(), 0) == 0.0);
  CHECK(wt::serve::pairwise_sum(values.data(), 7) == 1.0 / 3 + 1.0 / 4 + 1.0 / 5 + 1.0 / 6 + 1.0 / 7 + 1.0 / 8 + 1.0 / 9);
  const double parts[] = {wt::serve::pairwise_sum(values.data(), 72), wt::serve::pairwise_sum(values.data() + 72, 72),
                          wt::serve::pairwise_sum(values.data() + 144, 72), wt::serve::pairwise_sum(values.data() + 216, 84)};
  CHECK(wt::serve::pairwise_sum(values.data(), 300) == (parts[0] + parts[1]) + (parts[2] + parts[3]));
}
