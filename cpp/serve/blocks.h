// The paged cache of one lane, as windtunnel.serving.cache has it: that file says what groups, stretches and copies are.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "serve/rows.h"

namespace wt::serve {

constexpr Number kOwn = Number{1} << 62;  // a request's own blocks are the group of this and its number
constexpr Number kNameless = -kOwn;

// Names of the first blocks of a request: block n of `named` ones is block n % per of the group `groups[n / per]`; those behind
// them are the blocks of the group `own`, if it is not 0.
struct BlockNames {
  const Number* groups = nullptr;
  Number per = 1, named = 0, own = 0;
};

struct BlockPart {
  Number group, first, end;
};

class PagedCache {
 public:
  PagedCache(Number total, Number block, Number requests)
      : held(requests), total_(total), block_(block), free_(total), shared_(requests), copies_(requests) {}

  [[nodiscard]] Number total() const { return total_; }
  [[nodiscard]] Number block() const { return block_; }
  [[nodiscard]] Number available() const { return free_ + unused_; }
  [[nodiscard]] Number blocks_for(Number tokens) const { return ceil_div(tokens, block_); }

  // Gives `request` the blocks of `tokens` in all; false, and nothing, where they lack.
  bool grow(Number request, Number tokens);
  // The same for `need` blocks of several requests, which the caller adds to `held`.
  bool take_all(Number need);
  void give_back(Number request, Number tokens);
  void release(Number request, Number tokens);
  [[nodiscard]] Number match(const BlockNames& names) const;
  [[nodiscard]] bool has_room(Number tokens, const BlockNames& names, Number found) const;
  void attach(Number request, const BlockNames& names, Number count);
  void name(Number request, const BlockNames& names, Number tokens);
  // Fails if blocks were lost or made.
  void check() const;

  Rows<Number> held;

 private:
  struct Group {
    Number there = 0, used = 0;
    std::map<Number, Number> users;
    std::vector<Number> ages;

    void join(Number count);
    void leave(Number count);
  };
  struct Stretch {
    Number group, first, end;
  };
  struct Shared {
    BlockNames names;
    Number count = 0;
  };

  static std::vector<BlockPart> parts(const BlockNames& names, Number first, Number end);
  Number keep(Number group, Number first, Number end);
  bool take_names(Group& group, Number first, Number end);
  void use(Group& group, Number end);
  void take(Number count);

  Number total_, block_, free_, unused_ = 0, age_ = 0;
  Rows<Shared> shared_;
  Rows<Number> copies_;
  std::unordered_map<Number, Group> groups_;
  std::map<Number, Stretch> stretches_;  // by age, the longest unused first
};

}  // namespace wt::serve
