// A finding: one of the structs of violations/, each with its typed arguments, its sentence and its
// manual page. Which of them there are is known in violation.cc alone, and a struct to those who
// make or ask for it, so that a new one recompiles a handful of files, and an edit of a page one.
#pragma once

#include "rules/violations/diagnostic_info.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <concepts>
#include <type_traits>
#include <utility>

namespace spmd::rules {

template <class T>
concept ViolationKind = requires {
  { std::remove_cvref_t<T>::info } -> std::same_as<const DiagnosticInfo &>;
};
using FieldVisitor = llvm::function_ref<void(std::string_view, const Field &)>;

class Violation {
public:
  template <ViolationKind Kind>
  Violation(Kind &&kind)
      : type_(&kTypeOf<std::remove_cvref_t<Kind>>),
        held_(new std::remove_cvref_t<Kind>(std::forward<Kind>(kind))) {}
  Violation(const Violation &other) : type_(other.type_), held_(type_->copy(other.held_)) {}
  Violation(Violation &&other) noexcept
      : type_(other.type_), held_(std::exchange(other.held_, nullptr)) {}
  Violation &operator=(Violation other) noexcept {
    std::swap(type_, other.type_);
    std::swap(held_, other.held_);
    return *this;
  }
  ~Violation() { type_->destroy(held_); }

  const DiagnosticInfo &info() const { return *type_->info; }
  template <ViolationKind Kind> bool is() const { return type_->info == &Kind::info; }
  // Null if it is of another kind.
  template <ViolationKind Kind> const Kind *as() const {
    return is<Kind>() ? static_cast<const Kind *>(held_) : nullptr;
  }
  template <ViolationKind Kind> Kind *as() {
    return is<Kind>() ? static_cast<Kind *>(held_) : nullptr;
  }
  bool same_finding(const Violation &other) const { return type_->info == other.type_->info; }

  // Name and typed value of each argument, in the order of the struct.
  void for_each_field(FieldVisitor visit) const { type_->fields(held_, visit); }
  // Arguments that most have; null where it has none of that name. The axes that it is about, and
  // the value and the operand that it names.
  ir::AxisSet *axes() { return type_->axes(held_); }
  ir::ValueId *value() { return type_->value(held_); }
  OperandIndex *operand() { return type_->operand(held_); }
  friend bool operator==(const Violation &a, const Violation &b) {
    return a.same_finding(b) && a.type_->same(a.held_, b.held_);
  }

private:
  struct Type {
    const DiagnosticInfo *info;
    void *(*copy)(const void *);
    void (*destroy)(void *);
    bool (*same)(const void *, const void *);
    void (*fields)(const void *, FieldVisitor);
    ir::AxisSet *(*axes)(void *);
    ir::ValueId *(*value)(void *);
    OperandIndex *(*operand)(void *);
  };
  template <class Kind> static ir::AxisSet *axes_of_kind(void *held) {
    if constexpr (requires(Kind kind) { requires std::same_as<decltype(kind.axes), ir::AxisSet>; })
      return &static_cast<Kind *>(held)->axes;
    return nullptr;
  }
  template <class Kind> static ir::ValueId *value_of_kind(void *held) {
    if constexpr (requires(Kind kind) { requires std::same_as<decltype(kind.value), ir::ValueId>; })
      return &static_cast<Kind *>(held)->value;
    return nullptr;
  }
  template <class Kind> static OperandIndex *operand_of_kind(void *held) {
    if constexpr (requires(Kind kind) {
                    requires std::same_as<decltype(kind.operand), OperandIndex>;
                  })
      return &static_cast<Kind *>(held)->operand;
    return nullptr;
  }
  template <class Kind> static void fields_of_kind(const void *held, FieldVisitor visit) {
    static_cast<const Kind *>(held)->fields(
        [&](std::string_view name, const auto &value) { visit(name, Field(value)); });
  }
  template <class Kind>
  static constexpr Type kTypeOf = {
      &Kind::info,
      [](const void *held) -> void * { return new Kind(*static_cast<const Kind *>(held)); },
      [](void *held) { delete static_cast<Kind *>(held); },
      [](const void *a, const void *b) {
        return *static_cast<const Kind *>(a) == *static_cast<const Kind *>(b);
      },
      fields_of_kind<Kind>,
      axes_of_kind<Kind>,
      value_of_kind<Kind>,
      operand_of_kind<Kind>};

  const Type *type_;
  void *held_;
};

// The manual of all kinds, in one order everywhere.
llvm::ArrayRef<const DiagnosticInfo *> all_violations();
inline const DiagnosticInfo &info(const Violation &violation) { return violation.info(); }
// Null if no violation has that name.
const DiagnosticInfo *find_violation(std::string_view name);
inline void for_each_field(const Violation &violation, FieldVisitor visit) {
  violation.for_each_field(visit);
}
// The axes that the finding is about; empty where it names none.
ir::AxisSet axes_of(const Violation &violation);
// Adds it to the violations from `first` on; one that is equal but for its axes takes them over.
void add_merged(llvm::SmallVectorImpl<Violation> &out, size_t first, Violation violation);

} // namespace spmd::rules
