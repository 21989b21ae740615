// Runs that faults interrupt, for Python: kinds and the task as rows of numbers, whose columns windtunnel.engine.faults names.
#include "faults/faults.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "bind/columns.h"
#include "bind/parts.h"

namespace wt::bind {

namespace {

using faults::Law;

constexpr std::size_t kLaw = 3, kKindLaws = 6, kKindPlain = 8, kKind = kKindPlain + kKindLaws * kLaw;
constexpr std::size_t kTaskLaws = 5, kTaskPlain = 7, kTask = kTaskPlain + kTaskLaws * kLaw;

Law law_of(const double* at) {
  if (at[0] < 0.0 || at[0] > 3.0) fail("a law's shape is 0 to 3");
  return {static_cast<faults::Shape>(static_cast<int>(at[0])), at[1], at[2]};
}

faults::Kind kind_of(const double* row) {
  faults::Kind kind;
  kind.rate = row[0];
  kind.automatic = row[1];
  kind.slows = row[2];
  kind.returns = row[3];
  kind.replaces = row[4] != 0.0;
  kind.restarts = row[5] != 0.0;
  kind.saves_first = row[6] != 0.0;
  kind.in_recovery = row[7] != 0.0;
  Law* const laws[] = {&kind.gap, &kind.detect, &kind.diagnose, &kind.by_hand, &kind.repair, &kind.after};
  for (std::size_t i = 0; i < kKindLaws; ++i) *laws[i] = law_of(row + kKindPlain + i * kLaw);
  return kind;
}

nb::dict faults_run(const Column<double>& task, const Column<double>& kinds, std::uint64_t seed, std::int64_t first,
                    std::int64_t count, int threads) {
  if (task.size() != kTask || kinds.size() % kKind != 0) fail("a task has ", kTask, " numbers and a kind ", kKind);
  const double* const t = task.data();
  faults::Task what;
  what.work = t[0];
  what.horizon = t[1];
  what.interval = t[2];
  what.save = t[3];
  what.flush = t[4];
  what.drag = t[5];
  what.spares = static_cast<std::int64_t>(t[6]);
  Law* const laws[] = {&what.swap, &what.spare_repair, &what.queue, &what.init, &what.load};
  for (std::size_t i = 0; i < kTaskLaws; ++i) *laws[i] = law_of(t + kTaskPlain + i * kLaw);
  std::vector<faults::Kind> rows;
  for (std::size_t k = 0; k < kinds.size() / kKind; ++k) rows.push_back(kind_of(kinds.data() + k * kKind));
  faults::Outcome out;
  {
    const nb::gil_scoped_release released;
    out = faults::run(what, rows, seed, first, count, threads);
  }
  const std::size_t runs = out.wall.size();
  nb::dict answer;
  answer["wall"] = array_of(std::move(out.wall));
  answer["parts"] = array_of(std::move(out.parts), {runs, faults::kParts});
  answer["count"] = array_of(std::move(out.count), {runs, rows.size()});
  answer["done"] = array_of(std::move(out.done));
  return answer;
}

}  // namespace

void bind_faults(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("faults_run", &faults_run, nb::kw_only(), column("task"), column("kinds"), "seed"_a, "first"_a, "count"_a, "threads"_a,
        "Runs of a task that faults interrupt; see windtunnel.engine.faults.run.");
}

}  // namespace wt::bind
