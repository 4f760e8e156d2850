// Terms carried out: what is looked up is gathered, the product is made, and scattered where the
// result is looked up.
#include "runtime/equation/term.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime::lowered {

namespace {

int64_t whole_number(double value) { return static_cast<int64_t>(value); }
int64_t whole_number(const Complex &value) { return static_cast<int64_t>(value.real()); }
int64_t whole_number(Residue value) { return value.number(); }

template <class T> T number_of(const Term &term, bool divides) {
  double divisor = divides ? static_cast<double>(term.divisor) : 1;
  return static_cast<double>(term.integer) * term.number / divisor;
}
template <> Residue number_of(const Term &term, bool divides) {
  return Residue(term.integer) * term.residue *
         (divides ? Residue(term.divisor).inverse() : Residue(1));
}

// The block that an index points into: where it begins, and how long the whole is.
template <class T>
std::pair<int64_t, int64_t> block_of(const Index &index, const Call<T> &call, int64_t extent) {
  if (index.whole || !index.held)
    return {0, extent};
  auto read = [&](const Dims *first, const Dims *whole) -> std::pair<int64_t, int64_t> {
    return {first ? (*first)[index.dim] : 0, whole ? (*whole)[index.dim] : extent};
  };
  if (index.in_result)
    return read(call.results[index.tensor].first, call.results[index.tensor].whole);
  return read(call.args[index.tensor].first, call.args[index.tensor].whole);
}

template <class T> class TermRun {
public:
  TermRun(const Term &term, const Call<T> &call, const View<T> &result)
      : term_(term), call_(call), result_(result) {}

  bool run(bool fresh, bool divides, const Precision &precision) {
    if (fresh && (term_.scatters || !term_.product->assigns(result_.size())))
      std::fill_n(result_.data, result_.size(), T(0));
    for (size_t j = 0; j < term_.edges.joined.size(); ++j)
      lookups_.push_back({term_.edges.joined[j], term_.edges.positions[j].data(), &edge_});
    edge_.assign(term_.extents.size(), 0);
    if (term_.edges.count)
      edge_[term_.edges.variable] = 1;
    positions_ = std::vector<Scratch<int64_t>>(term_.indices.size());
    size_t edges = lookups_.size();
    for (size_t i = 0; i < term_.indices.size(); ++i)
      find_positions(term_.indices[i], llvm::ArrayRef<Lookup>(lookups_).take_front(edges),
                     positions_[i]);
    rooms_ = std::vector<Scratch<T>>(term_.sources.size());
    llvm::SmallVector<const T *, 6> inputs;
    llvm::SmallVector<F32Source, 6> kept;
    for (size_t s = 0; s < term_.sources.size(); ++s) {
      const Source &source = term_.sources[s];
      inputs.push_back(looked_up(source, data_of(source, rooms_[s]), rooms_[s]));
      kept.emplace_back();
      if (source.form == Source::Form::Operand && !source.is_gathered && !precision.kept.empty())
        kept.back() = {precision.kept[source.arg], call_.args[source.arg].size()};
    }
    if constexpr (std::is_same_v<T, Residue>)
      if (!term_.edges.coefficients.empty())
        inputs.push_back(term_.edges.coefficients.data()), kept.emplace_back();
    T number = number_of<T>(term_, divides);
    if (!term_.scatters) {
      return term_.product->run<T>(inputs, number, result_.data, fresh, precision.single, kept);
    }
    Scratch<T> made;
    made.cells.assign(static_cast<size_t>(term_.product_size), T(0));
    term_.product->run<T>(inputs, number, made.cells.data(), true, precision.single, kept);
    const T *from = made.cells.data();
    walk(term_.extents, term_.product_strides, term_.result, lookups_,
         [&](int64_t first, int64_t at, int64_t step, int64_t length) {
           for (int64_t k = 0; k < length; ++k)
             result_.data[at + k * step] += from[first + k];
         });
    return false;
  }

private:
  void find_positions(const Index &index, llvm::ArrayRef<Lookup> edges, Scratch<int64_t> &room) {
    // Not a structured binding: clang 14 captures none.
    const std::pair<int64_t, int64_t> block = block_of(index, call_, index.extent);
    const int64_t first = block.first, whole = block.second;
    const T *entries = call_.args[index.arg].data;
    std::vector<int64_t> &positions = room.cells;
    positions.assign(static_cast<size_t>(index.size), -1);
    walk(term_.extents, index.read, index.strides, edges,
         [&](int64_t to, int64_t at, int64_t step, int64_t length) {
           for (int64_t k = 0; k < length; ++k) {
             int64_t place = whole_number(entries[at + k * step]);
             // What an unknown function gives points somewhere, too.
             if (std::is_same_v<T, Residue> && whole > 0)
               place = ((place % whole) + whole) % whole;
             place -= first;
             bool there = place >= 0 && place < index.extent;
             positions[static_cast<size_t>(to + k)] = there ? place : -1;
           }
         });
    lookups_.push_back({index.target, positions.data(), &index.read});
  }

  // The data of a source as they lie; `room` is free to be used.
  const T *data_of(const Source &source, Scratch<T> &room) {
    switch (source.form) {
    case Source::Form::Operand:
      return call_.args[source.arg].data;
    case Source::Form::Hit: {
      const std::vector<int64_t> &positions = positions_[source.part].cells;
      room.cells.resize(positions.size());
      for (size_t i = 0; i < positions.size(); ++i)
        room.cells[i] = positions[i] >= 0 ? T(1) : T(0);
      return room.cells.data();
    }
    default:
      break;
    }
    if constexpr (std::is_same_v<T, Residue>)
      return made_up(source, room);
    return nullptr; // lowering refuses it
  }
  const Residue *made_up(const Source &source, Scratch<Residue> &room) {
    if (source.form == Source::Form::Weight) {
      const View<const Residue> &entries = call_.args[source.arg];
      room.cells.resize(static_cast<size_t>(entries.size()));
      for (int64_t i = 0; i < entries.size(); ++i)
        room.cells[static_cast<size_t>(i)] = weight(source, entries[i]);
      return room.cells.data();
    }
    if (source.form == Source::Form::Draws)
      return draws();
    const Function &function = term_.functions[source.part];
    bool takes_draws =
        llvm::any_of(function.arguments, [](const FunctionArgument &each) { return each.draws; });
    room.cells.resize(static_cast<size_t>(source.size));
    call_function(term_, function, source, call_, takes_draws ? draws() : nullptr,
                  room.cells.data());
    return room.cells.data();
  }
  static Residue weight(const Source &source, Residue entry) {
    switch (source.keeps) {
    case Source::Keeps::True:
      return entry == Residue() ? 0 : 1;
    case Source::Keeps::False:
      return entry == Residue() ? 1 : 0;
    case Source::Keeps::Hash:
      break;
    }
    return Residue::from_bits(mix(source.seed, entry.value()));
  }
  const Residue *draws() {
    if (!draws_.cells.empty())
      return draws_.cells.data();
    View<const Residue> place{result_.dims, result_.data, result_.dtype, result_.first,
                              result_.whole};
    if (term_.draws_by_arg)
      place = call_.args[term_.draws_at];
    draws_.cells.resize(static_cast<size_t>(std::max<int64_t>(place.size(), 1)));
    draw(call_, place, draws_.cells.data());
    return draws_.cells.data();
  }

  const T *looked_up(const Source &source, const T *data, Scratch<T> &room) {
    if (!source.is_gathered)
      return data;
    Scratch<T> gathered;
    gathered.cells.assign(static_cast<size_t>(source.gathered), T(0));
    T *to = gathered.cells.data();
    walk(term_.extents, source.read, source.strides, lookups_,
         [&](int64_t first, int64_t at, int64_t step, int64_t length) {
           for (int64_t k = 0; k < length; ++k)
             to[first + k] = data[at + k * step];
         });
    std::swap(room.cells, gathered.cells);
    return room.cells.data();
  }

  const Term &term_;
  const Call<T> &call_;
  const View<T> &result_;
  llvm::SmallVector<Lookup, 4> lookups_;
  Strides edge_;
  std::vector<Scratch<int64_t>> positions_;
  std::vector<Scratch<T>> rooms_;
  struct Draws {
    std::vector<Residue> cells;
  } draws_;
};

} // namespace

template <class T>
bool run_term(const Term &term, const Call<T> &call, const View<T> &result, bool fresh,
              bool divides, const Precision &precision) {
  return TermRun<T>(term, call, result).run(fresh, divides, precision);
}

template bool run_term(const Term &, const Call<double> &, const View<double> &, bool, bool,
                       const Precision &);
template bool run_term(const Term &, const Call<Complex> &, const View<Complex> &, bool, bool,
                       const Precision &);
template bool run_term(const Term &, const Call<Residue> &, const View<Residue> &, bool, bool,
                       const Precision &);

} // namespace spmd::runtime::lowered
