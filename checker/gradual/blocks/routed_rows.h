// Rows that a rank sorts, picks and sends to other ranks, as tokens to the experts of a model, and
// what experts make of them. Each rank has some of the rows of one tensor all the time: what is
// known is in which order they stand. Rows that meet must stand in one order; what undoes a sort or
// an exchange has the one before.
#pragma once

#include "checker/gradual/cuts.h"

#include "rules/apply.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace spmd::checker {

class RoutedRows {
public:
  using OrderId = uint32_t; // 0: that in which the rows came
  // Numbers of a rank's own rows: for rows in one order, which rows in another one.
  struct Map {
    OrderId domain = 0;
    std::optional<OrderId> base; // none: that of the first rows that are picked by it
    int64_t rows = 0;            // how many there are to pick from
    int64_t blocks = 1;          // how often what these are made of lies there, one after the other
    bool once = false;           // picks none twice
    ir::AxisSet axes;            // along which ranks have rows of their own
  };
  struct Facts {
    ir::AxisSet rows;     // axes along which the results are such rows, in dimension 0
    bool whole = false;   // the rule is to see the rows of the operands as all that there are
    ir::AxisSet entries;  // axes along which it takes one of a rank's own entries
    bool last = false;    // only the last result is such rows: others are in an order of their own
    bool counted = false; // how long the result is, counts say
    ir::AxisSet astray;   // axes along which rows in different orders meet
    ir::AxisSet unsent;   // axes along which a rank's own meets what was not sent to it
    ir::AxisSet summed;   // axes along which what is summed over rows has only rows that were sent
    // Axes along which each result is a rank's own, if it is equal.
    llvm::SmallVector<ir::AxisSet, 1> owned;
    std::optional<OrderId> order; // of the rows of the results
    std::optional<Map> map;       // what the last result is
    std::vector<Map> columns;     // what the columns of the result, or the results, are
    std::vector<OrderId> parts;   // of the rows of each result
    ir::AxisSet owned_by(size_t result) const {
      return result < owned.size() ? owned[result] : ir::AxisSet();
    }
    ir::AxisSet seen_whole() const { // axes along which the rule does not see that ranks differ
      ir::AxisSet axes = whole ? rows : ir::AxisSet();
      for (ir::AxisSet own : owned)
        axes |= own;
      return axes - astray - unsent;
    }
    ir::AxisSet taken_whole() const { return ((whole ? rows : ir::AxisSet()) | entries) - astray; }
  };

  // `zero_blocks`: values that are made of zeros, and cut.
  RoutedRows(ir::Program &program, const Cuts &cuts, const llvm::DenseSet<uint32_t> &zero_blocks)
      : program_(program), cuts_(cuts), zero_blocks_(zero_blocks) {}

  // `unread`: operands of which only the shape is read.
  Facts infer(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
              llvm::ArrayRef<ir::ValueId> results, llvm::function_ref<bool(size_t)> unread);
  void learn(ir::ValueId value, uint32_t index, bool last, const Facts &facts,
             const ir::Type &type);

  // Axes along which a value is a rank's own, as the weights of its experts are.
  ir::AxisSet owned(ir::ValueId value) const { return owned_.lookup(value.index); }
  void own(ir::ValueId value, ir::AxisSet axes) { owned_[value.index] |= axes; }
  // Those along which it was used for nothing but rows that were sent to it.
  ir::AxisSet used_for_sent(ir::ValueId param) const {
    return owned(param) - misused_.lookup(param.index);
  }
  // Axes along which a value is a sum over rows that were sent to the rank, and no others.
  ir::AxisSet summed(ir::ValueId value) const { return summed_.lookup(value.index); }
  // Axes along which integers are what a rank has counted of its own rows, to send and pick them.
  ir::AxisSet counts(ir::ValueId value) const { return counts_.lookup(value.index); }
  void count(ir::ValueId value, ir::AxisSet axes) { counts_[value.index] |= axes; }
  // Axes that cut the first dimension of a parameter of which ranks use one entry after the other.
  ir::AxisSet in_entries(ir::ValueId param) const { return in_entries_.lookup(param.index); }

private:
  struct Order {
    enum class Form : uint8_t { Picked, Exchanged, Part } form;
    OrderId base;
    uint64_t first, second; // the map; the lengths of what is sent and received; the rows
    ir::AxisSet axes;       // along which ranks have rows of their own; Exchanged: over which
    ir::AxisSet away;       // along which the rows are not those that the rank had
    int64_t rows = 0;       // Part: of the whole
  };

  OrderId order_of(ir::ValueId value) const { return orders_.lookup(value.index); }
  OrderId add(Order order);
  uint64_t lengths(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                   llvm::StringRef word);
  bool exchange(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands, Facts &facts);
  bool sort(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
            llvm::ArrayRef<ir::ValueId> results, Facts &facts);
  bool find_places(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                   llvm::ArrayRef<ir::ValueId> results, Facts &facts);
  bool see_map(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
               llvm::ArrayRef<ir::ValueId> results, Facts &facts);
  bool pick(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands, Facts &facts);
  bool put(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
           llvm::ArrayRef<ir::ValueId> results, Facts &facts);
  bool take_part(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands, Facts &facts);
  bool take_entry(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                  size_t results, Facts &facts);
  void join(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
            llvm::function_ref<bool(size_t)> unread, Facts &facts);
  ir::AxisSet find_owned(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                         llvm::ArrayRef<size_t> of, ir::AxisSet &unsent) const;
  void find_owned(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
                  size_t results, llvm::function_ref<bool(size_t)> unread, Facts &facts);
  const Map *map_of(ir::ValueId value) const;
  std::optional<OrderId> base_of(const Map &map) const;
  void bind(const Map &map, OrderId base);
  ir::AxisSet away(OrderId order) const { return order ? known_[order - 1].away : ir::AxisSet(); }
  bool is_zero(const rules::Application &app, llvm::ArrayRef<ir::ValueId> operands,
               size_t arg) const;

  int64_t blocks(ir::ValueId value, ir::AxisSet axes) const;

  ir::Program &program_;
  const Cuts &cuts_;
  const llvm::DenseSet<uint32_t> &zero_blocks_;
  std::vector<Order> known_; // by OrderId - 1
  std::map<std::tuple<Order::Form, OrderId, uint64_t, uint64_t, uint64_t>, OrderId> ids_;
  std::map<std::vector<int64_t>, uint64_t> lists_; // of lengths
  llvm::DenseMap<uint32_t, OrderId> orders_;       // by value
  llvm::DenseMap<OrderId, OrderId> bound_; // of maps by their domains: what rows they first picked
  std::map<uint32_t, Map> maps_;
  std::map<uint32_t, std::vector<Map>> columns_;
  llvm::DenseMap<uint32_t, ir::AxisSet> owned_, counts_, in_entries_, misused_, summed_;
};

} // namespace spmd::checker
