// SPDX-License-Identifier: Apache-2.0
// What the pool is held against: the traces, and allocators over virtual addresses that keep their
// books and nothing else.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace reprise::bench {

// ---- traces -------------------------------------------------------------------------------------

struct TraceEvent {
  std::uint32_t id;
  std::uint64_t size;  // 0: the block is freed
};

struct Trace {
  std::vector<TraceEvent> events;
  std::uint32_t ids = 0;
  std::uint64_t peak_live = 0;

  void allocate(std::uint64_t size) {
    events.push_back({ids++, size});
    sizes_.push_back(size);
    live_ += size;
    peak_live = std::max(peak_live, live_);
  }
  void free(std::uint32_t id) {
    events.push_back({id, 0});
    live_ -= sizes_[id];
  }

private:
  std::vector<std::uint64_t> sizes_;
  std::uint64_t live_ = 0;
};

/// Sizes log-uniform from 256 B to 64 MiB.
class TraceSizes {
public:
  explicit TraceSizes(std::uint64_t seed) : random(seed) {}
  std::uint64_t operator()() { return static_cast<std::uint64_t>(std::exp2(exponent_(random))); }

  std::mt19937_64 random;

private:
  std::uniform_real_distribution<double> exponent_{8, 26};
};

/// 12,000 blocks with exponential lifetimes, most of them short and some long.
inline const Trace& mixed_trace() {
  static const Trace trace = [] {
    Trace made;
    TraceSizes size(11);
    std::uniform_real_distribution<double> unit(0, 1);
    std::exponential_distribution<double> life(1);
    std::multimap<std::uint64_t, std::uint32_t> ends;
    const auto end_until = [&](std::uint64_t now) {
      for (; !ends.empty() && ends.begin()->first <= now; ends.erase(ends.begin())) {
        made.free(ends.begin()->second);
      }
    };
    for (std::uint64_t now = 0; now < 12000; ++now) {
      end_until(now);
      const double mean = unit(size.random) < 0.7 ? 40 : 1200;
      ends.emplace(now + 1 + static_cast<std::uint64_t>(life(size.random) * mean), made.ids);
      made.allocate(size());
    }
    end_until(UINT64_MAX);
    return made;
  }();
  return trace;
}

/// Forty equal training steps: 150 activations, each with a scratch block, freed in reverse.
inline const Trace& steps_trace() {
  static const Trace trace = [] {
    Trace made;
    TraceSizes size(12);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes(150);
    for (auto& [activation, scratch] : sizes) activation = size(), scratch = size();
    for (int step = 0; step < 40; ++step) {
      std::vector<std::uint32_t> kept;
      for (const auto& [activation, scratch] : sizes) {
        kept.push_back(made.ids);
        made.allocate(activation);
        made.allocate(scratch);
        made.free(made.ids - 1);
      }
      for (; !kept.empty(); kept.pop_back()) made.free(kept.back());
    }
    return made;
  }();
  return trace;
}

// ---- allocators ---------------------------------------------------------------------------------

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t rounded(std::uint64_t n, std::uint64_t to) {
  return (n + to - 1) / to * to;
}

/// A piece of an address range, linked with its neighbours there.
struct Piece {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  Piece* left = nullptr;
  Piece* right = nullptr;
  Piece* before = nullptr;
  Piece* after = nullptr;
  bool free = false;
};

/// Recycled records of pieces, and what cuts and joins them.
class Pieces {
public:
  Piece* make(std::uint64_t address, std::uint64_t size, Piece* left, Piece* right) {
    if (spare_ == nullptr) {
      chunks_.push_back(std::make_unique<Piece[]>(256));
      for (int i = 255; i >= 0; --i) drop(&chunks_.back()[i]);
    }
    Piece* const made = std::exchange(spare_, spare_->right);
    *made = {address, size, left, right, nullptr, nullptr, false};
    if (left != nullptr) left->right = made;
    if (right != nullptr) right->left = made;
    return made;
  }
  /// Cuts `piece` to `size` and answers the rest.
  Piece* cut(Piece* piece, std::uint64_t size) {
    Piece* const rest = make(piece->address + size, piece->size - size, piece, piece->right);
    piece->size = size;
    return rest;
  }
  void swallow_right(Piece* piece) {
    Piece* const gone = piece->right;
    piece->size += gone->size;
    piece->right = gone->right;
    if (piece->right != nullptr) piece->right->left = piece;
    drop(gone);
  }

private:
  void drop(Piece* piece) {
    piece->right = spare_;
    spare_ = piece;
  }

  Piece* spare_ = nullptr;
  std::vector<std::unique_ptr<Piece[]>> chunks_;
};

/// Two-level segregated fit: 32 lists to an octave; what is found in the class above always fits.
class TwoLevelIndex {
public:
  void insert(Piece* piece) {
    const auto [row, column] = class_of(piece->size);
    piece->before = nullptr;
    piece->after = heads_[row][column];
    if (piece->after != nullptr) piece->after->before = piece;
    heads_[row][column] = piece;
    rows_ |= std::uint64_t{1} << row;
    columns_[row] |= 1u << column;
  }
  void remove(Piece* piece) {
    if (piece->after != nullptr) piece->after->before = piece->before;
    if (piece->before != nullptr) {
      piece->before->after = piece->after;
      return;
    }
    const auto [row, column] = class_of(piece->size);
    heads_[row][column] = piece->after;
    if (piece->after != nullptr) return;
    columns_[row] &= ~(1u << column);
    if (columns_[row] == 0) rows_ &= ~(std::uint64_t{1} << row);
  }
  Piece* find(std::uint64_t size) const {
    auto [row, column] = class_of(size + (std::uint64_t{1} << (std::bit_width(size) - 6)) - 1);
    std::uint32_t fitting = columns_[row] & (~0u << column);
    if (fitting == 0) {
      const std::uint64_t above = rows_ & (~std::uint64_t{1} << row);
      if (above == 0) return nullptr;
      row = std::countr_zero(above);
      fitting = columns_[row];
    }
    return heads_[row][std::countr_zero(fitting)];
  }

private:
  static std::pair<int, int> class_of(std::uint64_t size) {
    const int row = static_cast<int>(std::bit_width(size)) - 1;
    return {row, static_cast<int>(size >> (row - 5)) & 31};
  }

  std::uint64_t rows_ = 0;
  std::uint32_t columns_[64] = {};
  Piece* heads_[64][32] = {};
};

/// Exact best fit in a red-black tree.
class TreeIndex {
public:
  void insert(Piece* piece) { pieces_.insert(piece); }
  void remove(Piece* piece) { pieces_.erase(piece); }
  Piece* find(std::uint64_t size) const {
    const Piece least{0, size};
    const auto at = pieces_.lower_bound(&least);
    return at == pieces_.end() ? nullptr : const_cast<Piece*>(*at);
  }

private:
  struct BySize {
    bool operator()(const Piece* a, const Piece* b) const {
      return a->size != b->size ? a->size < b->size : a->address < b->address;
    }
  };
  std::set<const Piece*, BySize> pieces_;
};

/// One range that grows at its end by 2 MiB.
template <class Index>
class GrowingRange {
public:
  using Handle = Piece*;

  Handle allocate(std::uint64_t size) {
    size = rounded(size, 256);
    Piece* piece = index_.find(size);
    if (piece == nullptr)
      piece = grow(size);
    else
      index_.remove(piece);
    if (piece->size > size) {
      Piece* const rest = pieces_.cut(piece, size);
      if (piece == last_) last_ = rest;
      give(rest);
    }
    piece->free = false;
    return piece;
  }
  void free(Handle piece) {
    if (piece->right != nullptr && piece->right->free) {
      index_.remove(piece->right);
      if (piece->right == last_) last_ = piece;
      pieces_.swallow_right(piece);
    }
    if (piece->left != nullptr && piece->left->free) {
      index_.remove(piece->left);
      if (piece == last_) last_ = piece->left;
      piece = piece->left;
      pieces_.swallow_right(piece);
    }
    give(piece);
  }
  std::uint64_t peak_reserved() const { return reserved_; }

private:
  void give(Piece* piece) {
    piece->free = true;
    index_.insert(piece);
  }
  Piece* grow(std::uint64_t size) {
    const bool joins = last_ != nullptr && last_->free;
    if (joins) index_.remove(last_);
    const std::uint64_t more = rounded(size - (joins ? last_->size : 0), 2 * mebibyte);
    if (joins)
      last_->size += more;
    else
      last_ = pieces_.make(reserved_, more, last_, nullptr);
    reserved_ += more;
    return last_;
  }

  Index index_;
  Pieces pieces_;
  Piece* last_ = nullptr;
  std::uint64_t reserved_ = 0;
};

/// The rules of PyTorch's caching allocator: small and large blocks apart, in segments of 2 MiB,
/// 20 MiB or the size of the block.
class CachingRules {
public:
  using Handle = Piece*;

  Handle allocate(std::uint64_t size) {
    size = rounded(size, 512);
    const bool small = size <= mebibyte;
    TreeIndex& index = index_[small];
    Piece* piece = index.find(size);
    if (piece != nullptr)
      index.remove(piece);
    else
      piece = segment(small                  ? 2 * mebibyte
                      : size < 10 * mebibyte ? 20 * mebibyte
                                             : rounded(size, 2 * mebibyte));
    const std::uint64_t rest = piece->size - size;
    if (small ? rest >= 512 : rest > mebibyte) give(index, pieces_.cut(piece, size));
    piece->free = false;
    piece->after = small ? piece : nullptr;  // Which of the two it belongs to.
    return piece;
  }
  void free(Handle piece) {
    TreeIndex& index = index_[piece->after != nullptr];
    if (piece->right != nullptr && piece->right->free) {
      index.remove(piece->right);
      pieces_.swallow_right(piece);
    }
    if (piece->left != nullptr && piece->left->free) {
      piece = piece->left;
      index.remove(piece);
      pieces_.swallow_right(piece);
    }
    give(index, piece);
  }
  std::uint64_t peak_reserved() const { return reserved_; }

private:
  Piece* segment(std::uint64_t size) {
    Piece* const made = pieces_.make(next_, size, nullptr, nullptr);
    next_ += size + 2 * mebibyte;
    reserved_ += size;
    return made;
  }
  static void give(TreeIndex& index, Piece* piece) {
    piece->free = true;
    index.insert(piece);
  }

  TreeIndex index_[2];
  Pieces pieces_;
  std::uint64_t next_ = 0;
  std::uint64_t reserved_ = 0;
};

}  // namespace reprise::bench
