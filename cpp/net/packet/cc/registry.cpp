#include "net/packet/cc/registry.h"

#include <array>
#include <cmath>

#include "net/packet/cc/dcqcn.h"
#include "net/packet/cc/hpcc.h"
#include "net/packet/cc/hybrid.h"
#include "net/packet/cc/none.h"
#include "net/packet/cc/swift.h"
#include "net/packet/cc/timely.h"

namespace wt::net::packet {

namespace {

constexpr std::array kAlgorithms{
    kNone, kDcqcn, kHpcc, kSwift, kTimely, kHybrid,
};

template <class Rows>
std::string names(const Rows& rows) {
  std::string out;
  for (const auto& row : rows) {
    if (!out.empty()) out += ", ";
    out += row.name;
  }
  return out.empty() ? "none" : out;
}

const Algorithm& find(std::string_view name) {
  for (const Algorithm& a : kAlgorithms) {
    if (a.name == name) return a;
  }
  fail("no congestion control '", name, "'; known: ", names(kAlgorithms));
}

const Parameter& find(const Algorithm& algorithm, std::string_view name) {
  for (const Parameter& p : algorithm.parameters) {
    if (p.name == name) return p;
  }
  fail(algorithm.name, " has no parameter '", name, "'; known: ", names(algorithm.parameters));
}

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

std::unique_ptr<Control> make_control(std::string_view name, std::span<const Setting> settings, std::int32_t pairs) {
  const Algorithm& algorithm = find(name);
  if (pairs < 0) fail(name, ": ", pairs, " queue pairs");
  Values values(algorithm.parameters);
  for (const Setting& setting : settings) {
    const Parameter& p = find(algorithm, setting.name);
    const bool whole = p.unit != "0/1" || setting.value == 0.0 || setting.value == 1.0;
    if (!(setting.value >= p.least && setting.value <= p.most && whole)) {  // NaN fails too
      fail(name, ": ", p.name, " is ", setting.value, ", must be ", p.unit == "0/1" ? "0 or 1 in " : "in ", "[", p.least, ", ",
           p.most, "]", p.unit.empty() ? "" : " ", p.unit);
    }
    values.set(p.name, setting.value);
  }
  return algorithm.make(values, pairs);
}

}  // namespace wt::net::packet
