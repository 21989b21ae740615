// Operators per second of the exec core on a pipelined program; prints, asserts nothing.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "tests/builder.h"

using namespace wt::exec;

namespace {

// 8 stages, 32 micro batches, 6 virtual stages each, both passes: 2 layers of 25 operators an instance, a transfer between them.
void fill(Builder& b) {
  constexpr int kRanks = 8, kMicro = 32, kChunks = 6;
  b.categories = 16;
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<OpSpec> layer;
    for (int k = 0; k < 25; ++k) {
      OpSpec op{.seconds = 1e-5 * (1 + k % 5) * (1 + pass), .stream = 0, .category = k % 12, .host = 4e-6};
      if (k % 6 == 5) op = {.seconds = 3e-5, .stream = 1, .category = 12, .host = 4e-6, .comm = true, .wait0 = k - 1};
      if (k % 6 == 0 && k > 0) op.wait0 = k - 1;
      layer.push_back(op);
    }
    b.add_template(std::move(layer));
  }
  b.ranks.assign(kRanks, {});
  for (int pass = 0; pass < 2; ++pass)
    for (int m = 0; m < kMicro; ++m)
      for (int c = 0; c < kChunks; ++c)
        for (int r = 0; r < kRanks; ++r) {
          auto& rank = b.ranks[static_cast<std::size_t>(r)];
          const auto key = [&](int stage) { return ((std::int64_t{pass} * kMicro + m) * kChunks + c) * kRanks + stage; };
          const auto index = [&] { return static_cast<int>(rank.size()) - 1; };
          if (r > 0) {
            rank.push_back(meet({{key(r), 1e-4, 2}}, {}, 2));
            rank.push_back(task(pass, {index()}, 2));
          } else {
            rank.push_back(task(pass, {}, 2));
          }
          if (r + 1 < kRanks) rank.push_back(meet({{key(r + 1), 1e-4, 2}}, {index()}, 3));
        }
}

void measure(const char* name, Builder& b) {
  const Program program = b.build();
  double best = 1e9;
  std::int64_t ops = 0;
  for (int repeat = 0; repeat < 30; ++repeat) {
    wt::net::Closed network;
    const auto from = std::chrono::steady_clock::now();
    ops = run(program, network).ops;
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count());
  }
  std::cout << name << ": " << ops << " operators in " << best * 1e3 << " ms, " << static_cast<double>(ops) / best * 1e-6
            << " M operators/s\n";
}

}  // namespace

int main() {
  Builder b;
  fill(b);
  b.critical_path = false;
  measure("plain", b);
  b.critical_path = true;
  measure("critical path", b);
  b.compute_tax = 0.1;
  measure("critical path, tax", b);
  b.host_window = 1024;
  measure("critical path, tax, host window", b);
  b.record = true;
  measure("everything recorded", b);
  return EXIT_SUCCESS;
}
