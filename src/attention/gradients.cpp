#include "attention/gradients.h"

#include <set>

#include "attention/refuse.h"
#include "base/words.h"

namespace fovea {
namespace {

// The captured thing of this name, or nothing. None is called q, k, v or sink: validate sees to it.
template <class Decl>
std::optional<std::size_t> slot_of(const std::vector<Decl>& declared, std::string_view name) {
  for (std::size_t slot = 0; slot < declared.size(); ++slot) {
    if (declared[slot].name == name) return slot;
  }
  return std::nullopt;
}

void want_tensor(Problem& problem, std::size_t slot) {
  const ir::TensorDecl& tensor = problem.program.tensors()[slot];
  if (ir::loaded_type(tensor.dtype) != ir::Type::F32) {
    refuse("grads", tensor.name,
           "is a tensor of " + std::string(dtype_name(tensor.dtype)) +
               "; only float tensors have gradients");
  }
  problem.want_tensors[slot] = true;
}

void want_scalar(Problem& problem, std::size_t slot) {
  const ir::ScalarDecl& scalar = problem.program.scalars()[slot];
  if (scalar.type != ir::Type::F32) {
    refuse("grads", scalar.name, "is an i32 scalar; only f32 scalars have gradients");
  }
  problem.want_scalars[slot] = true;
}

std::vector<std::string> known_names(const Problem& problem) {
  std::vector<std::string> names{"q", "k", "v", "sink"};
  for (const ir::TensorDecl& tensor : problem.program.tensors()) names.push_back(tensor.name);
  for (const ir::ScalarDecl& scalar : problem.program.scalars()) names.push_back(scalar.name);
  return names;
}

void want(Problem& problem, const std::string& name) {
  if (const auto slot = slot_of(problem.program.tensors(), name)) {
    want_tensor(problem, *slot);
  } else if (const auto scalar = slot_of(problem.program.scalars(), name)) {
    want_scalar(problem, *scalar);
  } else if (name == "q") {
    problem.want_q = true;
  } else if (name == "k") {
    problem.want_k = true;
  } else if (name == "v") {
    problem.want_v = true;
  } else if (name == "sink") {
    problem.want_sink = true;
  } else {
    refuse("grads", name.substr(0, 64),
           "is not q, k, v, sink or a captured name" + did_you_mean(name, known_names(problem)));
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

void want_gradients(Problem& problem, std::string_view names) {
  problem.want_q = problem.want_k = problem.want_v = problem.want_sink = false;
  problem.want_tensors.assign(problem.program.tensors().size(), false);
  problem.want_scalars.assign(problem.program.scalars().size(), false);
  std::set<std::string> seen;
  while (!names.empty()) {
    const std::size_t comma = std::min(names.find(','), names.size());
    const std::string name(trimmed(names.substr(0, comma)));
    names.remove_prefix(std::min(comma + 1, names.size()));
    if (!seen.insert(name).second) refuse("grads", name, "is named twice");
    want(problem, name);
  }
}

std::string wanted_gradients(const Problem& problem) {
  std::string out;
  const auto add = [&](bool wanted, std::string_view name) {
    if (wanted) out.append(out.empty() ? "" : ",").append(name);
  };
  add(problem.want_q, "q");
  add(problem.want_k, "k");
  add(problem.want_v, "v");
  for (std::size_t slot = 0; slot < problem.want_tensors.size(); ++slot) {
    add(problem.want_tensors[slot], problem.program.tensors()[slot].name);
  }
  for (std::size_t slot = 0; slot < problem.want_scalars.size(); ++slot) {
    add(problem.want_scalars[slot], problem.program.scalars()[slot].name);
  }
  add(problem.want_sink, "sink");
  return out;
}

}  // namespace fovea
