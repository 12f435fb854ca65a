#include "ir/expr.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "base/hash.h"

namespace fovea::ir {
namespace {

Depends own_dependence(Op op) {
  switch (op) {
    case Op::Score: return Depends::Score;
    case Op::Grad: return Depends::Grad;
    case Op::ScalarF:
    case Op::ScalarI: return Depends::Scalar;
    case Op::LoadF:
    case Op::LoadI:
    case Op::LoadB: return Depends::Load;
    case Op::IndexB: return Depends::B;
    case Op::IndexH: return Depends::H;
    case Op::IndexQ: return Depends::Q;
    case Op::IndexK: return Depends::K;
    // A sequence's own lengths: they change with b if sequences vary.
    case Op::SizeSq:
    case Op::SizeSkv: return Depends::B;
    default: return Depends::None;
  }
}

}  // namespace

Node::Node(Op op, std::uint32_t payload, std::span<const Expr> args, double rest)
    : payload_(payload), rest_(rest), count_(static_cast<std::uint16_t>(args.size())), op_(op) {
  std::uninitialized_copy(args.begin(), args.end(), reinterpret_cast<Expr*>(this + 1));
  const Form form = info(op).form;
  const bool slotted = form == Form::Scalar || form == Form::Load;
  const auto code = static_cast<std::uint64_t>(op) << 16 | count_;
  hash_ = hash_combine(code, payload);
  shape_hash_ = hash_combine(code, slotted ? 0 : payload);
  if (rest != 0) {  // an f32 literal has the hash that it has always had
    hash_ = hash_combine(hash_, std::bit_cast<std::uint64_t>(rest));
    shape_hash_ = hash_combine(shape_hash_, std::bit_cast<std::uint64_t>(rest));
  }
  depends_ = own_dependence(op);
  for (const Expr& arg : args) {
    hash_ = hash_combine(hash_, arg->hash_);
    shape_hash_ = hash_combine(shape_hash_, arg->shape_hash_);
    depends_ = depends_ | arg->depends_;
    depth_ = std::max(depth_, arg->depth_ + 1);
  }
}

// Hash tables of all live nodes, one mutex each. A node whose count has reached zero is never
// revived: a look-up that meets it makes a new node, and the dying one unlinks itself.
class Interner {
 public:
  Expr find_or_make(Op op, std::uint32_t payload, std::span<const Expr> args, double rest) {
    // Hashing needs a node; building it first and dropping it when another is there costs one
    // allocation on a hit, which is cheaper than hashing twice.
    void* memory = ::operator new(sizeof(Node) + args.size() * sizeof(Expr));
    Node* fresh = new (memory) Node(op, payload, args, rest);
    Shard& shard = shard_of(*fresh);
    const Node* found = nullptr;
    {
      const std::lock_guard lock(shard.mutex);
      found = shard.find(*fresh);
      if (found == nullptr) shard.insert(fresh);
    }
    Expr expr;
    expr.node_ = found != nullptr ? found : fresh;
    if (found != nullptr) destroy(fresh);  // its arguments live on in `found`: no cascade
    return expr;
  }

  // The count of `node` has reached zero. Iterative: chains may be thousands deep.
  void collect(const Node* node) {
    std::vector<const Node*> dead{node};
    while (!dead.empty()) {
      Node* dying = const_cast<Node*>(dead.back());
      dead.pop_back();
      {
        Shard& shard = shard_of(*dying);
        const std::lock_guard lock(shard.mutex);
        shard.erase(dying);
      }
      for (Expr& arg : mutable_args(dying)) {
        const Node* child = std::exchange(arg.node_, nullptr);
        if (child->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) dead.push_back(child);
      }
      destroy(dying);
    }
  }

  std::size_t size() {
    std::size_t total = 0;
    for (Shard& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      total += shard.count;
    }
    return total;
  }

  // Never destroyed: expressions in static objects may outlive any order of destruction.
  static Interner& instance() {
    static Interner* interner = new Interner;
    return *interner;
  }

 private:
  struct Shard {
    std::mutex mutex;
    std::vector<const Node*> buckets = std::vector<const Node*>(64);
    std::size_t count = 0;

    const Node*& bucket(const Node& node) {
      return buckets[(node.hash_ >> 4) & (buckets.size() - 1)];
    }

    const Node* find(const Node& wanted) {
      for (const Node* node = bucket(wanted); node != nullptr; node = node->next_) {
        if (same(*node, wanted) && revive(*node)) return node;
      }
      return nullptr;
    }

    void insert(const Node* node) {
      if (count >= buckets.size()) grow();
      link(node);
      ++count;
    }

    void erase(const Node* node) {
      const Node** at = &bucket(*node);
      while (*at != node) at = &(*at)->next_;
      *at = node->next_;
      --count;
    }

    void link(const Node* node) {
      const Node*& head = bucket(*node);
      node->next_ = head;
      head = node;
    }

    void grow() {
      std::vector<const Node*> old(buckets.size() * 2);
      old.swap(buckets);
      for (const Node* node : old) {
        while (node != nullptr) link(std::exchange(node, node->next_));
      }
    }
  };

  static bool same(const Node& a, const Node& b) {
    return a.hash_ == b.hash_ && a.op_ == b.op_ && a.payload_ == b.payload_ && a.rest_ == b.rest_ &&
           std::ranges::equal(a.args(), b.args());
  }

  static bool revive(const Node& node) {
    std::uint32_t count = node.references_.load(std::memory_order_relaxed);
    while (count != 0) {
      if (node.references_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  static std::span<Expr> mutable_args(Node* node) {
    return {reinterpret_cast<Expr*>(node + 1), node->count_};
  }

  static void destroy(Node* node) {
    std::ranges::destroy(mutable_args(node));
    node->~Node();
    ::operator delete(node);
  }

  Shard& shard_of(const Node& node) { return shards_[node.hash_ & (shards_.size() - 1)]; }

  std::array<Shard, 16> shards_;
};

void Expr::release() {
  if (node_ == nullptr) return;
  if (node_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    Interner::instance().collect(node_);
  }
  node_ = nullptr;
}

Expr intern(Op op, std::uint32_t payload, std::span<const Expr> args, double rest) {
  return Interner::instance().find_or_make(op, payload, args, rest);
}

std::size_t live_nodes() { return Interner::instance().size(); }

namespace {

template <class T>
int order(T x, T y) {
  return x < y ? -1 : x > y ? 1 : 0;
}

// Down to the first place where two structures differ, slots not counting.
int compare_shapes(const Node* a, const Node* b) {
  for (;;) {
    if (const int by = order(a->op(), b->op())) return by;
    if (a->is_const()) {
      const int by = order(a->payload(), b->payload());
      return by != 0 ? by : order(a->rest(), b->rest());
    }
    if (const int by = order(a->args().size(), b->args().size())) return by;
    std::size_t i = 0;
    while (i < a->args().size() && a->arg(i)->shape_hash() == b->arg(i)->shape_hash()) ++i;
    if (i == a->args().size()) return order(a->shape_hash(), b->shape_hash());
    const Node* const deeper = a->arg(i).get();
    b = b->arg(i).get();
    a = deeper;
  }
}

}  // namespace

int compare(const Expr& x, const Expr& y) {
  const Node* a = x.get();
  const Node* b = y.get();
  while (a != b) {
    if (a->shape_hash() != b->shape_hash()) return compare_shapes(a, b);
    if (const int by = order(a->op(), b->op())) return by;
    if (const int by = order(a->payload(), b->payload())) return by;  // slots
    if (const int by = order(a->args().size(), b->args().size())) return by;
    std::size_t i = 0;  // interned: different nodes with the same head differ in an operand
    while (a->arg(i) == b->arg(i)) ++i;
    const Node* const deeper = a->arg(i).get();
    b = b->arg(i).get();
    a = deeper;
  }
  return 0;
}

}  // namespace fovea::ir
