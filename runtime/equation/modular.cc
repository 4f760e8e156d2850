// What an equation leaves open, chosen for residues: hashes of 61 bits and more, so that two that
// should differ are equal with a probability of 2^-61.
#include "runtime/equation/term.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace spmd::runtime::lowered {

uint64_t mix(uint64_t hash, uint64_t more) {
  hash += more * 0x9e3779b97f4a7c15ull + 0x632be59bd9b4e019ull;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ull;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebull;
  return hash ^ (hash >> 31);
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size();
  for (char c : text)
    hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

namespace {

std::string_view text_of(const ir::Program &program, ir::StringId id) {
  llvm::StringRef text = program.strings[id];
  return {text.data(), text.size()};
}

uint64_t hash_of(const ir::Program &program, const ir::AttrValue &value) {
  auto hash = static_cast<uint64_t>(value.form);
  switch (value.form) {
  case ir::AttrForm::Bool:
  case ir::AttrForm::Integer:
  case ir::AttrForm::Float:
    return mix(hash, value.bits);
  case ir::AttrForm::String:
    return mix(hash, lowered::hash_of(text_of(program, value.as<ir::StringId>())));
  case ir::AttrForm::List:
    for (const ir::AttrValue &item : program.lists[value.as<ir::AttrListId>()].items)
      hash = mix(hash, hash_of(program, item));
    return hash;
  default:
    return hash;
  }
}

} // namespace

uint64_t hash_of(const ir::Program &program, ir::AttrsId attrs) {
  static constexpr llvm::StringLiteral kTyping[] = {"partial", "vjp", "member"};
  uint64_t hash = 1;
  for (const ir::Attr &attr : program.attrs[attrs].attrs)
    if (!llvm::is_contained(kTyping, program.strings[attr.key]))
      hash += mix(lowered::hash_of(text_of(program, attr.key)), hash_of(program, attr.value));
  return hash;
}

// Edges.

namespace {

constexpr int64_t kDense = 4096; // pairs of positions that are all joined

class EdgeChooser {
public:
  EdgeChooser(llvm::ArrayRef<Variable> variables, llvm::ArrayRef<uint64_t> labels, uint64_t seed,
              Edges &edges)
      : variables_(variables), labels_(labels), seed_(seed), edges_(edges) {
    for (unsigned v = 0; v < variables.size(); ++v)
      if (variables[v].joined)
        edges_.joined.push_back(v);
    // The same order whichever side of the map is the result at hand.
    llvm::sort(edges_.joined, [&](unsigned a, unsigned b) { return key(a) < key(b); });
    edges_.positions.resize(edges_.joined.size());
  }

  void run(std::vector<llvm::SmallVector<unsigned, 4>> sets) {
    int64_t all = 1;
    for (unsigned v : edges_.joined)
      all = all > kDense ? all : all * extent(v);
    if (all <= kDense)
      sets = {edges_.joined};
    for (llvm::SmallVector<unsigned, 4> &set : sets)
      llvm::sort(set, [&](unsigned a, unsigned b) { return key(a) < key(b); });
    llvm::sort(sets, [&](const auto &a, const auto &b) { return name(a) < name(b); });
    sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
    for (const llvm::SmallVector<unsigned, 4> &set : sets)
      add_all(set);
    edges_.count = static_cast<int64_t>(edges_.hashes.size());
  }

private:
  std::pair<bool, uint64_t> key(unsigned v) const { return {variables_[v].of_result, labels_[v]}; }
  int64_t extent(unsigned v) const { return variables_[v].extent; }
  uint64_t name(llvm::ArrayRef<unsigned> set) const {
    uint64_t hash = set.size();
    for (unsigned v : set)
      hash = mix(mix(hash, variables_[v].of_result), labels_[v]);
    return hash;
  }

  // An edge for each place of the variables of a set; the others stand where a hash says.
  void add_all(llvm::ArrayRef<unsigned> set) {
    for (unsigned v : edges_.joined)
      if (extent(v) == 0)
        return;
    llvm::SmallVector<int64_t, 4> place(set.size(), 0);
    while (true) {
      add(set, place);
      size_t l = set.size();
      for (; l-- > 0;) {
        if (++place[l] < extent(set[l]))
          break;
        place[l] = 0;
      }
      if (l == size_t(-1))
        return;
    }
  }
  void add(llvm::ArrayRef<unsigned> set, llvm::ArrayRef<int64_t> place) {
    uint64_t other = mix(seed_, name(set)), hash = seed_;
    for (int64_t p : place)
      other = mix(other, static_cast<uint64_t>(p));
    for (size_t j = 0; j < edges_.joined.size(); ++j) {
      unsigned v = edges_.joined[j];
      const auto *at = llvm::find(set, v);
      int64_t found = at != set.end()
                          ? place[static_cast<size_t>(at - set.begin())]
                          : static_cast<int64_t>(mix(other, j) % static_cast<uint64_t>(extent(v)));
      edges_.positions[j].push_back(found);
      hash = mix(mix(hash, labels_[v] * 2 + variables_[v].of_result), static_cast<uint64_t>(found));
    }
    edges_.hashes.push_back(hash);
  }

  llvm::ArrayRef<Variable> variables_;
  llvm::ArrayRef<uint64_t> labels_; // of a factor, whatever it is numbered here
  uint64_t seed_;
  Edges &edges_;
};

} // namespace

void choose_edges(llvm::ArrayRef<Variable> variables, llvm::ArrayRef<uint64_t> labels,
                  std::vector<llvm::SmallVector<unsigned, 4>> sets, uint64_t seed, Edges &edges) {
  EdgeChooser(variables, labels, seed, edges).run(std::move(sets));
}

// Functions and random numbers.

namespace {

// A hash per place of an argument, its whole dimensions folded.
void fold_argument(const Term &term, const FunctionArgument &argument, const Residue *data,
                   std::vector<uint64_t> &hashes) {
  hashes.assign(static_cast<size_t>(std::max<int64_t>(argument.size, 1)), 0);
  Strides place(argument.folded.size(), 0);
  auto fold = [&](int64_t at) {
    uint64_t hash = 0;
    for (const auto &loop : argument.folded)
      if (loop.first == 0)
        return hash;
    while (true) {
      hash = mix(hash, data[at].value());
      size_t l = place.size();
      for (; l-- > 0;) {
        at += argument.folded[l].second;
        if (++place[l] < argument.folded[l].first)
          break;
        at -= argument.folded[l].second * argument.folded[l].first;
        place[l] = 0;
      }
      if (l == size_t(-1))
        return hash;
    }
  };
  walk(term.extents, argument.read, argument.strides, {},
       [&](int64_t first, int64_t at, int64_t step, int64_t length) {
         for (int64_t k = 0; k < length; ++k)
           hashes[static_cast<size_t>(first + k)] = fold(at + k * step);
       });
}

} // namespace

void call_function(const Term &term, const Function &function, const Source &source,
                   const Call<Residue> &call, const Residue *draws, Residue *values) {
  Scratch<uint64_t> hashes;
  hashes.cells.assign(static_cast<size_t>(source.size), function.seed);
  // Each argument in turn joins the hash at each place.
  for (const FunctionArgument &argument : function.arguments) {
    Scratch<uint64_t> folded;
    fold_argument(term, argument, argument.draws ? draws : call.args[argument.arg].data,
                  folded.cells);
    walk(term.extents, source.strides, argument.read, {},
         [&](int64_t first, int64_t at, int64_t step, int64_t length) {
           for (int64_t k = 0; k < length; ++k) {
             uint64_t &hash = hashes.cells[static_cast<size_t>(first + k)];
             hash = mix(hash, folded.cells[static_cast<size_t>(at + k * step)]);
           }
         });
  }
  if (term.edges.count && source.strides[term.edges.variable]) {
    Strides along(term.extents.size(), 0);
    along[term.edges.variable] = 1;
    walk(term.extents, source.strides, along, {},
         [&](int64_t first, int64_t at, int64_t step, int64_t length) {
           for (int64_t k = 0; k < length; ++k) {
             uint64_t &hash = hashes.cells[static_cast<size_t>(first + k)];
             hash = mix(hash, term.edges.hashes[static_cast<size_t>(at + k * step)]);
           }
         });
  }
  for (int64_t i = 0; i < source.size; ++i)
    values[i] = Residue::from_bits(hashes.cells[static_cast<size_t>(i)]);
}

void draw(const Call<Residue> &call, const View<const Residue> &view, Residue *values) {
  uint64_t seed = mix(mix(call.context.seed, call.context.op), call.context.stream);
  const rules::Slot *state = call.context.binding.generator;
  for (unsigned k = 0; state && k < state->count; ++k) {
    const View<const Residue> &entries = call.args[state->first + k];
    for (int64_t i = 0; entries && i < entries.size(); ++i)
      seed = mix(seed, entries[i].value());
  }
  Dims place(view.rank(), 0);
  for (int64_t i = 0; i < view.size(); ++i) {
    uint64_t hash = seed;
    for (unsigned d = 0; d < view.rank(); ++d)
      hash = mix(hash, static_cast<uint64_t>(place[d] + (view.first ? (*view.first)[d] : 0)));
    values[i] = Residue::from_bits(hash);
    for (unsigned d = view.rank(); d-- > 0;) {
      if (++place[d] < view.dim(d))
        break;
      place[d] = 0;
    }
  }
}

} // namespace spmd::runtime::lowered
