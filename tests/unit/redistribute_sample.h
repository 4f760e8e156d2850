// Redistribution requests in a short notation: mesh `a2b3`, shape `16x8`, types `[ab, -] Pc Id`.
#pragma once

#include "rules/redistribute/request.h"

#include "ir/input/input.h"

#include <string>
#include <vector>

namespace spmd::redistribute_test {

namespace rd = rules::redistribute;

// A program that has nothing but a mesh.
inline ir::Program program_on(llvm::StringRef mesh) {
  std::string text;
  while (!mesh.empty()) {
    llvm::StringRef name = mesh.take_front(1);
    mesh = mesh.drop_front();
    int64_t size = 0;
    mesh.consumeInteger(10, size);
    text += (text.empty() ? "mesh m { " : ", ") + name.str() + " = " + std::to_string(size);
  }
  return ir::read_program(text + " }\n").program;
}

inline ir::TypeId read_type(ir::Program &program, llvm::StringRef text,
                            ir::Kind otherwise = ir::Kind::Replicate) {
  const ir::Mesh &mesh = program.meshes[ir::MeshId{0}];
  ir::Type type;
  type.set_mesh(ir::MeshId{0});
  type.set_kind(mesh.typed_axes(), otherwise);
  auto axis = [&](char letter) { return *mesh.find(program.strings.add(std::string(1, letter))); };
  auto [spec, kinds] = text.trim().drop_front().split(']');
  llvm::SmallVector<llvm::StringRef, 4> dims, words;
  spec.split(dims, ',');
  for (unsigned dim = 0; dim < dims.size(); ++dim) {
    unsigned place = 0;
    for (char letter : dims[dim].trim())
      if (letter != '-') {
        type.set_kind(axis(letter), ir::Kind::Varying);
        type.set_shard(axis(letter), dim, place++);
      }
  }
  kinds.split(words, ' ', -1, false);
  for (llvm::StringRef word : words)
    for (char letter : word.drop_front())
      type.set_kind(axis(letter), word[0] == 'P'   ? ir::Kind::Partial
                                  : word[0] == 'I' ? ir::Kind::Invariant
                                                   : ir::Kind::Reduced);
  return program.types.add(type);
}

inline ir::ShapeId read_shape(ir::Program &program, llvm::StringRef text) {
  ir::Shape shape;
  shape.dtype = ir::DType::F32;
  llvm::SmallVector<llvm::StringRef, 4> extents;
  text.split(extents, 'x');
  for (llvm::StringRef extent : extents) {
    int64_t number = 0;
    extent.getAsInteger(10, number);
    shape.dims.push_back(ir::Extent(number));
  }
  return program.shapes.add(std::move(shape));
}

inline std::string steps_of(const ir::Program &program, const rd::Plan &plan, unsigned rank) {
  std::string text;
  for (const rd::Step &step : plan.steps)
    text += (text.empty() ? "" : "; ") + rd::print(program, step, rank);
  return text;
}

} // namespace spmd::redistribute_test
