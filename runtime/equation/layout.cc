// From the variables along which the arrays of a term lie to strides: what is looked up gives way
// to the variables of its table, and a product is planned over the rest.
#include "runtime/equation/lowering.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime::lowered {

namespace {

using Order = llvm::SmallVector<unsigned, 8>; // variables, the innermost last

class Layout {
public:
  Layout(Lowering &lowering, Draft &draft, uint64_t seed)
      : all_(lowering), draft_(draft), term_(draft.term), seed_(seed),
        edge_(static_cast<unsigned>(draft.variables.size())) {}

  void run() {
    for (const Variable &each : draft_.variables) {
      if (each.extent < 0)
        all_.fail("the extent of a dimension does not follow from the tensors at hand");
      term_.extents.push_back(each.extent);
    }
    if (!all_.problem.empty())
      return;
    term_.extents.push_back(1);
    join_whole();
    for (unsigned v = 0; v < edge_; ++v)
      if (index_of(v) || is_joined(v))
        term_.extents[v] = 1;
    for (size_t i = 0; i < term_.indices.size(); ++i)
      finish_index(term_.indices[i], strides_of(draft_.indices[i]));
    size_t next = 0;
    for (Function &function : term_.functions)
      for (FunctionArgument &argument : function.arguments) {
        argument.strides = strides_of(draft_.arguments[next++]);
        argument.read = dense(in_order(argument.strides), argument.size);
      }
    for (Draft::Part &part : draft_.parts)
      finish_source(part);
    add_hits();
    finish_result();
    make_product();
  }

private:
  Strides strides_of(const Entries &entries) const {
    Strides strides(edge_ + 1, 0);
    for (auto [v, stride] : entries)
      strides[v] += stride;
    return strides;
  }
  // Of a dense array of these variables.
  Strides dense(const Order &order, int64_t &size) const {
    Strides strides(edge_ + 1, 0);
    size = 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = size;
      size *= term_.extents[order[i]];
    }
    return strides;
  }

  void join_whole() {
    std::vector<llvm::SmallVector<unsigned, 4>> sets;
    auto add_set = [&](const Entries &entries) {
      llvm::SmallVector<unsigned, 4> set;
      for (auto [v, unused] : entries)
        if (draft_.variables[v].joined && !llvm::is_contained(set, v))
          set.push_back(v);
      if (!set.empty())
        sets.push_back(std::move(set));
    };
    add_set(draft_.result);
    for (const Draft::Part &part : draft_.parts)
      add_set(part.entries);
    for (const Entries &each : draft_.indices)
      add_set(each);
    if (sets.empty())
      return;
    std::vector<uint64_t> labels;
    for (const Variable &each : draft_.variables)
      labels.push_back(all_.labels[each.factor]);
    term_.edges.variable = edge_;
    choose_edges(draft_.variables, labels, std::move(sets), seed_, term_.edges);
    term_.extents[edge_] = term_.edges.count;
    if (term_.functions.empty())
      for (uint64_t hash : term_.edges.hashes)
        term_.edges.coefficients.push_back(Residue::from_bits(hash));
  }

  bool is_joined(unsigned v) const { return v < edge_ && draft_.variables[v].joined; }
  const Index *index_of(unsigned v) const {
    for (const Index &index : term_.indices)
      if (index.target == v)
        return &index;
    return nullptr;
  }
  Order in_order(const Strides &strides) const {
    Order order;
    for (unsigned v = 0; v < strides.size(); ++v)
      if (strides[v])
        order.push_back(v);
    llvm::stable_sort(order, [&](unsigned a, unsigned b) { return strides[a] > strides[b]; });
    return order;
  }
  // The variables of what is left once those that are looked up give way to those of the tables.
  // `changed`: there were any.
  Order after_lookups(const Strides &strides, bool indices, bool &changed) const {
    Order order, kept;
    auto add = [&](unsigned v) {
      if (!llvm::is_contained(order, v))
        order.push_back(v);
    };
    changed = false;
    for (unsigned v : in_order(strides)) {
      const Index *index = indices ? index_of(v) : nullptr;
      if (is_joined(v))
        add(edge_);
      else if (index)
        for (unsigned w : in_order(index->read))
          add(w);
      else
        kept.push_back(v);
      changed |= is_joined(v) || index;
    }
    for (unsigned v : kept)
      add(v);
    return order;
  }

  void finish_index(Index &index, Strides strides) {
    bool changed = false;
    index.strides = std::move(strides);
    index.read = dense(after_lookups(index.strides, false, changed), index.size);
  }
  void finish_source(Draft::Part &part) {
    Source source = part.source;
    source.strides = strides_of(part.entries);
    if (source.form == Source::Form::Function) {
      Order order;
      for (auto [v, unused] : part.entries)
        order.push_back(v);
      llvm::sort(order);
      if (term_.edges.count)
        order.insert(order.begin(), edge_);
      source.strides = dense(order, source.size);
    }
    bool changed = false;
    Order order = after_lookups(source.strides, true, changed);
    source.read = source.strides;
    if (changed)
      source.read = dense(order, source.gathered);
    source.is_gathered = changed;
    term_.sources.push_back(std::move(source));
  }
  // An index whose target nothing has counts the entries that point into what is at hand.
  void add_hits() {
    Strides result = strides_of(draft_.result);
    for (unsigned i = 0; i < term_.indices.size(); ++i) {
      unsigned target = term_.indices[i].target;
      bool met = result[target] || llvm::any_of(term_.sources, [&](const Source &source) {
                   return source.strides[target] != 0;
                 });
      if (met)
        continue;
      Source source;
      source.form = Source::Form::Hit;
      source.part = i;
      source.strides = source.read = term_.indices[i].read;
      term_.sources.push_back(std::move(source));
    }
  }
  void finish_result() {
    term_.result = strides_of(draft_.result);
    Order order = after_lookups(term_.result, true, term_.scatters);
    term_.product_strides = term_.result;
    if (term_.scatters)
      term_.product_strides = dense(order, term_.product_size);
  }
  void make_product() {
    Loops loops{term_.extents, {}, term_.product_strides};
    for (const Source &source : term_.sources)
      loops.inputs.push_back(source.read);
    if (!term_.edges.coefficients.empty()) {
      Strides along(edge_ + 1, 0);
      along[edge_] = 1;
      loops.inputs.push_back(std::move(along));
    }
    term_.product.emplace(loops);
  }

  Lowering &all_;
  Draft &draft_;
  Term &term_;
  uint64_t seed_;
  unsigned edge_; // the variable of the linear map
};

} // namespace

void lay_out(Lowering &lowering, Draft &draft, uint64_t seed) {
  Layout(lowering, draft, seed).run();
}

} // namespace spmd::runtime::lowered
