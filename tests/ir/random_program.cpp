#include "tests/ir/random_program.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "ir/build.h"
#include "ir/program.h"

namespace fovea::test {
namespace {

using namespace ir;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float special_floats[] = {0.0f,
                                    -0.0f,
                                    1.0f,
                                    -1.0f,
                                    2.0f,
                                    -2.0f,
                                    0.5f,
                                    4.0f,
                                    -8.0f,
                                    3.0f,
                                    0.1f,
                                    30.0f,
                                    infinity,
                                    -infinity,
                                    1e-45f,
                                    1.17549435e-38f,
                                    3.4028235e+38f,
                                    -3.4028235e+38f,
                                    1e20f,
                                    1e-20f,
                                    2147483648.0f,
                                    -2147483648.0f,
                                    16777216.0f,
                                    0x1p-126f,
                                    0x1p127f,
                                    0x1p126f,
                                    std::numeric_limits<float>::quiet_NaN()};
constexpr float tame_floats[] = {1.0f, 2.0f, 0.5f, -1.0f, 1.5f, 0.25f, 3.0f, -0.75f, 0.0f};
constexpr std::int32_t int_min = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t special_ints[] = {
    0,       1,       -1,          2,           3,       4,          -2,      5,     6,
    7,       8,       16,          31,          32,      33,         64,      -3,    -4,
    int_max, int_min, int_min + 1, int_max - 1, 1 << 30, -(1 << 30), 1 << 16, 65535, 1 << 20};

bool is_smooth(Op op) {
  switch (op) {
    case Op::SignF:
    case Op::Floor:
    case Op::Ceil:
    case Op::Round: return false;
    default: return true;
  }
}

// Functions of one f32 are many; the rest is what formulas are made of.
bool is_function(const OpInfo& row) { return row.signature == "f>f" && row.form == Form::Call; }

class Drawing {
 public:
  Drawing(Random& random, const Draw& wanted) : random_(random), wanted_(wanted) {}

  RawGraph run() {
    node(wanted_.type, wanted_.size);
    return std::move(graph_);
  }

 private:
  std::uint32_t push(Op op, std::uint32_t payload, std::vector<std::uint32_t> args = {}) {
    graph_.push_back({op, payload, std::move(args)});
    return static_cast<std::uint32_t>(graph_.size() - 1);
  }

  std::uint32_t node(Type type, std::uint32_t budget) {
    if (random_.chance(15)) {
      if (const auto old = earlier(type)) return *old;
    }
    if (budget == 0 || random_.chance(5) || random_.spent()) return leaf(type);
    return operation(type, budget);
  }

  // Some node of this type that is there already, if a few guesses find one.
  std::optional<std::uint32_t> earlier(Type type) {
    for (int guess = 0; guess < 4 && !graph_.empty(); ++guess) {
      const std::uint32_t at = random_.below(static_cast<std::uint32_t>(graph_.size()));
      if (info(graph_[at].op).result() == type) return at;
    }
    return std::nullopt;
  }

  std::uint32_t operation(Type type, std::uint32_t budget) {
    for (;;) {
      const OpInfo& row = all_ops[random_.below(op_count)];
      if (random_.spent()) return leaf(type);
      if (row.arity() == 0 || row.result() != type) continue;
      if (wanted_.smooth && !is_smooth(row.op)) continue;
      if (is_function(row) && random_.chance(75)) continue;
      std::vector<std::uint32_t> args;
      const auto share = (budget - 1) / static_cast<std::uint32_t>(row.arity());
      for (std::size_t i = 0; i < row.arity(); ++i) {
        const bool same = i > 0 && row.argument(i) == row.argument(i - 1) && random_.chance(7);
        args.push_back(same ? args.back() : node(row.argument(i), share));
      }
      return push(row.op, 0, std::move(args));
    }
  }

  std::uint32_t leaf(Type type) {
    switch (type) {
      case Type::F32: return real_leaf();
      case Type::I32: return int_leaf();
      case Type::Bool: break;
    }
    if (wanted_.captured && random_.chance(60)) return load(Type::Bool);
    if (random_.chance(20)) return push(Op::ConstB, random_.below(2));
    const Op compare = random_.pick(std::array{Op::LeI, Op::LtI, Op::EqI, Op::NeI});
    return push(compare, 0, {int_leaf(), int_leaf()});
  }

  std::uint32_t real_leaf() {
    const std::uint32_t choice = random_.below(10);
    if (choice < 4 && wanted_.score) return push(Op::Score, 0);
    if (choice < 5 && wanted_.grad) return push(Op::Grad, 0);
    if (choice < 7 && wanted_.captured) {
      return random_.chance(60) ? load(Type::F32) : push(Op::ScalarF, random_.below(2));
    }
    const float value = wanted_.smooth ? random_.pick(tame_floats) : random_float(random_);
    return push(Op::ConstF, std::bit_cast<std::uint32_t>(value));
  }

  std::uint32_t int_leaf() {
    constexpr Op leaves[] = {Op::IndexQ,  Op::IndexK, Op::IndexB, Op::IndexH,
                             Op::IndexQ,  Op::IndexK, Op::SizeB,  Op::SizeH,
                             Op::SizeHkv, Op::SizeSq, Op::SizeSkv};
    const std::uint32_t choice = random_.below(10);
    if (choice < 5) return push(random_.pick(leaves), 0);
    if (choice < 6 && wanted_.captured) return load(Type::I32);
    if (choice < 7 && wanted_.captured) return push(Op::ScalarI, 2 + random_.below(2));
    const std::int32_t value = wanted_.smooth ? random_.between(-2, 4) : random_int(random_);
    return push(Op::ConstI, static_cast<std::uint32_t>(value));
  }

  std::uint32_t load(Type type) {
    const std::vector<TensorDecl>& tensors = random_declarations().tensors;
    std::vector<std::uint32_t> fitting;
    for (std::uint32_t slot = 0; slot < tensors.size(); ++slot) {
      if (loaded_type(tensors[slot].dtype) == type) fitting.push_back(slot);
    }
    const std::uint32_t slot = random_.pick(fitting);
    std::vector<std::uint32_t> at;
    for (std::size_t i = 0; i < tensors[slot].extents.size(); ++i) {
      at.push_back(depth_ < 3 && random_.chance(30) ? index(3) : index(0));
    }
    const Op op = type == Type::F32 ? Op::LoadF : type == Type::I32 ? Op::LoadI : Op::LoadB;
    return push(op, slot, std::move(at));
  }

  std::uint32_t index(std::uint32_t budget) {
    ++depth_;  // loads in indices of loads end
    const std::uint32_t at =
        budget == 0
            ? push(random_.pick(std::array{Op::IndexQ, Op::IndexK, Op::IndexH, Op::IndexB}), 0)
            : node(Type::I32, budget);
    --depth_;
    return at;
  }

  Random& random_;
  const Draw wanted_;
  RawGraph graph_;
  int depth_ = 0;
};

}  // namespace

const Declarations& random_declarations() {
  static const auto* all = [] {
    auto* out = new Declarations;
    for (const char* text :
         {"f0:f32[H]", "f1:f16[Sq,Skv]", "f2:bf16[]", "f3:f32[B,H,Sq]", "f4:f32[H]", "f5:f32[H]",
          "i0:i32[B,Sq]", "i1:i64[Skv]", "i2:u8[3,2]", "i3:i32[]", "b0:bool[B,H]", "b1:bool[]"}) {
      declare(*out, parse_tensor(text));
    }
    for (const char* text : {"s0", "s1:f32=0.5", "n0:i32", "n1:i32=3"}) {
      declare(*out, parse_scalar(text));
    }
    return out;
  }();
  return *all;
}

RawGraph draw(Random& random, const Draw& wanted) {
  RawGraph graph = Drawing(random, wanted).run();
  return graph;
}

std::vector<Expr> build_all(const RawGraph& graph) {
  std::vector<Expr> built;
  for (const RawNode& node : graph) {
    std::vector<Expr> args;
    for (const std::uint32_t arg : node.args) args.push_back(built[arg]);
    switch (info(node.op).form) {
      case Form::Leaf: built.push_back(leaf(node.op)); break;
      case Form::Const:
        built.push_back(node.op == Op::ConstF ? constant(std::bit_cast<float>(node.payload))
                        : node.op == Op::ConstI
                            ? constant(std::bit_cast<std::int32_t>(node.payload))
                            : constant(node.payload != 0));
        break;
      case Form::Scalar: built.push_back(scalar(info(node.op).result(), node.payload)); break;
      case Form::Load: built.push_back(load(info(node.op).result(), node.payload, args)); break;
      default: built.push_back(make(node.op, args)); break;
    }
  }
  return built;
}

Expr build(const RawGraph& graph) { return build_all(graph).back(); }

float random_float(Random& random) {
  const std::uint32_t kind = random.below(8);
  if (kind < 5) return random.pick(special_floats);
  return kind < 7 ? random.normal() : std::bit_cast<float>(random.bits());
}

std::int32_t random_int(Random& random) {
  const std::uint32_t kind = random.below(8);
  if (kind < 4) return random.pick(special_ints);
  return kind < 7 ? random.between(-9, 40) : std::bit_cast<std::int32_t>(random.bits());
}

Program random_program(Random& random, std::uint32_t size) {
  Expr mod, mask, bprop;
  if (random.chance(80)) mod = build(draw(random, {.size = random.below(size)}));
  if (!mod || random.chance(50)) {
    mask = build(draw(random, {.type = Type::Bool, .size = random.below(size), .score = false}));
  }
  if (mod && random.chance(25))
    bprop = build(draw(random, {.size = random.below(size), .grad = true}));
  return {random_declarations(), mod, mask, bprop};
}

}  // namespace fovea::test
