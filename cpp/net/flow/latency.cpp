#include "net/flow/latency.h"

#include <algorithm>

#include "base/check.h"

namespace wt::net::flow {

Latency latency(const Demands& paths, std::span<const double> wait, std::span<const double> rate, std::span<const double> size,
                double mtu, double ack) {
  validate(paths, rate.size());
  if (wait.size() != rate.size()) fail("there are ", rate.size(), " rates of links and ", wait.size(), " latencies");
  if (size.size() != paths.rows()) fail("there are ", paths.rows(), " paths and ", size.size(), " sizes");
  if (!(mtu > 0.0) || !(ack >= 0.0)) fail("mtu is ", mtu, " and ack is ", ack, "; they must be above zero, and zero or more");
  std::vector<double> pace(rate.size());
  for (std::size_t l = 0; l < rate.size(); ++l) {
    if (!(rate[l] > 0.0)) fail("link ", l, " has a rate of ", rate[l]);
    pace[l] = 1.0 / rate[l];
  }
  Latency out;
  out.there.resize(paths.rows());
  out.back.resize(paths.rows());
  for (std::size_t p = 0; p < paths.rows(); ++p) {
    double propagation = 0.0, serial = 0.0, slowest = 0.0;
    for (auto i = static_cast<std::size_t>(paths.start[p]); i < static_cast<std::size_t>(paths.start[p + 1]); ++i) {
      const auto l = static_cast<std::size_t>(paths.links[i]);
      propagation += wait[l];
      serial += pace[l];
      slowest = std::max(slowest, pace[l]);
    }
    out.there[p] = propagation + std::min(size[p], mtu) * (serial - slowest);
    out.back[p] = propagation + ack * serial;
  }
  return out;
}

}  // namespace wt::net::flow
