// Congestion control: CPU time a packet of each algorithm, and what presets make of one port of 400 Gb/s. Prints, asserts nothing.
#include <cstdio>
#include <ctime>

#include "tests/cc_loop.h"

using namespace drive;

namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A packet: permit, sent, and an ACK with six hops of telemetry where it is wanted; one in `marks` is marked.
void cost(const Algorithm& a, int marks) {
  constexpr std::int32_t kPairs = 1024;
  constexpr std::int32_t kRounds = 5000;
  const auto control = make_control(a.name, {}, kPairs);
  for (std::int32_t p = 0; p < kPairs; ++p) control->begin(p, 0, line400());
  std::vector<Hop> hops(6, Hop{0, 0, 8192, 400 * kGb});
  double sum = 0.0;
  const double begin = cpu_seconds();
  for (std::int32_t round = 1; round <= kRounds; ++round) {
    for (std::int32_t p = 0; p < kPairs; ++p) {
      const Time now = Time{round} * 4 * kUs + p * 1000;
      sum += control->permit(p, now).rate;
      control->sent(p, now, 4096);
      Ack ack{now, 20 * kUs, 4096, Time{round} * 4096, Time{round} * 4096 + 300'000, false, {}};
      if (control->wants_telemetry()) {
        for (Hop& h : hops) h.time = now, h.sent = Time{round} * 160'000;
        ack.hops = hops;
      }
      control->acked(p, ack);
      if (marks > 0 && (round + p) % marks == 0) control->notified(p, now);
    }
  }
  const double seconds = cpu_seconds() - begin;
  std::printf("%-8s %s %6.1f ns a packet  (mean rate %.3g B/s)\n", std::string(a.name).c_str(), marks > 0 ? "marked  " : "unmarked",
              seconds / kPairs / kRounds * 1e9, sum / kPairs / kRounds);
}

void preset(const char* name, std::string_view algorithm, const Settings& settings, const Marking& marking = {}) {
  const Share s = share(algorithm, settings, marking);
  std::printf("%-16s port used %.3f  fairness %.3f  queue %8.0f B  back after %8.0f us\n", name, s.used, s.fairness, s.queue,
              recovery(algorithm, settings, marking) * 1e6);
}

}  // namespace

int main() {
  for (const Algorithm& a : algorithms()) {
    cost(a, 0);
    if (make_control(a.name, {}, 0)->wants_notifications()) cost(a, 64);
  }
  preset("hpcc", "hpcc", {});
  preset("swift", "swift", {});
  preset("megascale", "hybrid", {}, kSimai);
  preset("dcqcn-connectx", "dcqcn", {}, kSpectrum);
  preset("... per pair", "dcqcn", {{"cnp_per_port", 0.0}}, kSpectrum);
  preset("dcqcn-paper", "dcqcn", paper_dcqcn(), {50e3, 2000e3, 0.01});
  preset("dcqcn-hpcc-fork", "dcqcn", fork_dcqcn());
  preset("timely", "timely", {});
  preset("nscc", "nscc", {}, {120e3, 480e3, 1.0});
}
