// The verdict of the rules on one op with sharded operands, held against what the ranks compute: an
// accepted application joins to what one device computes, a refused one has, for each type that its
// results could have been given, data for which that type would be false.
#pragma once

#include "tests/property/sharding.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "ir/input/input.h"
#include "rules/apply.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>

namespace spmd::property {

// What an op computes, on whole tensors and on blocks.
class OpMeaning {
public:
  virtual ~OpMeaning() = default;
  // None if operands do not fit together.
  virtual std::optional<std::vector<Array>> run(const std::vector<Array> &operands) const = 0;
  // What the results of the ranks are times what one device computes: an average counts shards.
  virtual int64_t scale(size_t result, const std::vector<Layout> &operands,
                        const MeshSizes &mesh) const;
};

struct OpOperand {
  std::vector<int> dims; // of the whole
  bool integer = false;
  bool shape_only = false, gives_shape_only = false; // gives extents, to some result or to all
};
struct OpCase {
  std::string name; // in reports and in the list of what is needlessly refused
  std::string op;
  std::string operands; // `%0, [%1, %2], null`
  std::vector<OpOperand> tensors;
  // Assignments for which the attributes have no value are left out; none: all have.
  std::function<bool(const std::vector<std::vector<int>> &local)> fits;
  // Attributes for operands of these local extents, without braces.
  std::function<std::string(const std::vector<std::vector<int>> &local)> attrs;
  unsigned results = 1;
  bool local = false; // the extents of the tensors are those of a block
  const OpMeaning *meaning = nullptr;
  // A view that keeps the order of elements: what the first rank makes of its block.
  std::optional<std::vector<int>> view;
  std::optional<std::vector<int>> view_of_whole; // where it follows from the whole
  std::optional<Layout> declared; // what the program states of the result, true or not
};

struct ShardCounts {
  size_t cases = 0, accepted = 0, refused = 0, needless = 0, silent = 0;
  size_t unknown = 0, certain = 0; // with an operand of unknown type; of these, with a finding
};
// Per case and kinds of violation: how often a refusal had no counterexample, and an example.
struct Needless {
  size_t count = 0;
  std::string example;
};
using NeedlessMap = std::map<std::pair<std::string, std::string>, Needless>;

class ShardCheck {
public:
  // Without `uneven` only such assignments as cut all dimensions evenly. `reversed`: uneven blocks
  // stand in reverse order.
  ShardCheck(MeshSizes mesh, unsigned seed, bool uneven = false, bool reversed = false);
  ~ShardCheck();

  // All assignments, or so many of them drawn at random.
  void run(const OpCase &op, size_t most);
  void run_one(const OpCase &op, const std::vector<Layout> &layouts);
  // Fails for all that was wrong.
  void report() const;

  ShardCounts counts;
  NeedlessMap needless;

private:
  struct Reader; // a program with one statement, whose operands are replaced
  // One assignment.
  struct Situation {
    const OpCase &op;
    std::vector<Layout> layouts; // per tensor
    unsigned stated = 0;         // a bit per axis in `partial`
    Reader &reader;
  };
  struct Verdict {
    bool accepted = false, unknown = false;
    std::set<std::string> violations;
    std::vector<std::optional<Layout>> results;
    std::vector<ir::Type> types;
    std::vector<std::optional<int64_t>> scales; // none: no whole number
    std::vector<ir::ShardSizesId> sizes;
    std::vector<std::optional<std::vector<int>>> shapes;
  };
  struct Values {
    std::vector<Array> expected;
    std::vector<std::vector<Array>> held; // per result and rank; empty: it cannot be run
  };

  // Every dimension is long enough to be cut so, and evenly if asked for.
  bool cuts(const OpCase &op, const std::vector<Layout> &layouts) const;
  // The whole that a result is by this layout. Of a view: its elements in order, its blocks being
  // as long as sizes (none: evenly) say.
  std::optional<Array> join(const Situation &at, const std::vector<Array> &held,
                            const Layout &layout, const std::vector<int> &first,
                            const ir::ShardSizes *sizes) const;
  std::optional<Array> join_view(const Situation &at, const std::vector<Array> &held,
                                 const Layout &layout) const;
  bool is_right(const Situation &at, const Verdict &verdict, const Values &values, size_t k) const;
  void check(const OpCase &op, const std::vector<Layout> &layouts);
  std::vector<std::vector<int>> locals(const OpCase &op, const std::vector<Layout> &layouts) const;
  Reader &reader(const OpCase &op, const std::vector<Layout> &layouts, unsigned stated);
  std::unique_ptr<Reader> read(const std::string &text) const;
  // The type of one tensor in the place of that of its layout.
  struct Replaced {
    size_t tensor = 0;
    ir::Type type;
  };
  // `erased`: judged locally, after this verdict.
  Verdict judge(const Situation &at, const Verdict *erased = nullptr,
                const Replaced *replaced = nullptr);
  Values compute(const Situation &at);
  // Each gives what is wrong, or nothing.
  std::string check_accepted(const Situation &at, const Verdict &verdict);
  std::string check_extents(const Situation &at, const Verdict &verdict, const Values &values);
  std::string check_erasure(const Situation &at, const Verdict &verdict);
  // A type of a result that no data speak against, per result; none where there is none.
  std::vector<std::optional<Layout>> unrefuted(const Situation &at, const Verdict &verdict);
  void check_refused(const Situation &at, const Verdict &verdict);
  // Where the type of one operand is not known on the axis, something is found exactly where it is
  // found whatever that type is.
  void check_unknown(const Situation &at);
  // An axis lies on a result dimension of one element per rank only where no other can take it.
  std::string check_units(const Situation &at, const Verdict &verdict);
  void fail(const Situation &at, const std::string &what);

  MeshSizes mesh_;
  std::mt19937 random_, data_random_; // verdicts do not change which assignments are drawn
  unsigned seed_;
  bool uneven_, reversed_;
  std::map<std::string, std::unique_ptr<Reader>> readers_;
  std::set<std::string> unknown_seen_; // situations of check_unknown, without the operand
  std::map<std::string, std::vector<std::string>> failures_; // per case: what was wrong
};

std::string print(const OpCase &op, const std::vector<Layout> &layouts);

// Where a shape_only is sharded: only its extents are read, so that its shards refuse what the
// values would allow.
inline constexpr std::string_view kDonated = "(sharded shape_only)";
// What is refused without a counterexample, by the start of the name of the case (empty: any) and
// the violation; each entry must occur, and nothing else may.
struct NeedlessEntry {
  std::string_view name, violation, reason;
};
// Reports what was wrong, too.
void check_needless(std::initializer_list<const ShardCheck *> checks,
                    std::initializer_list<std::span<const NeedlessEntry>> lists);

} // namespace spmd::property
