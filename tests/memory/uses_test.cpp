// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/uses.hpp>

#include <support/host_memory.hpp>
#include <support/seed.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <random>
#include <set>
#include <vector>

using namespace reprise;
using reprise::test::host_allocations;
using reprise::test::HostMemoryFault;

namespace {

constexpr ByteRange hundred{0, 100};

using Points = std::map<StreamIndex, StreamPosition>;

Points points(const Frontier& frontier) {
  Points out;
  for (const StreamPoint point : frontier) out[point.stream] = point.position;
  return out;
}

Points before_read(const UseMap& uses, ByteRange range) {
  Frontier out;
  uses.before_read(range, out);
  return points(out);
}

Points before_write(const UseMap& uses, ByteRange range) {
  Frontier out;
  uses.before_write(range, out);
  return points(out);
}

Points all(const UseMap& uses) {
  Frontier out;
  uses.all(out);
  return points(out);
}

UsePoint at(StreamIndex stream, StreamPosition position) {
  return {{stream, position}, nullptr};
}
UsePoint in(const StreamPoint& cell) {
  return {{}, &cell};
}

// The uses of one byte.
struct ByteUses {
  UsePoint writer;
  std::map<StreamIndex, StreamPosition> readers;
  std::set<const StreamPoint*> cells;

  bool used() const { return !writer.is_none() || !readers.empty() || !cells.empty(); }
  void read(const UsePoint& use) {
    if (use.is_none()) return;
    // What a wait for the writer covers for ever says nothing new.
    const StreamPoint point = use.at();
    if (use.cell()) {
      if (writer.cell() != use.cell()) cells.insert(use.cell());
    } else if (const auto mine = readers.find(point.stream); mine != readers.end()) {
      mine->second = std::max(mine->second, point.position);
    } else if (writer.cell() || writer.at().stream != point.stream ||
               writer.at().position < point.position) {
      readers[point.stream] = point.position;
    }
  }
  friend bool operator==(const ByteUses&, const ByteUses&) = default;
};

class NaiveUses {
public:
  explicit NaiveUses(std::uint64_t bytes) : bytes_(bytes) {}

  void note_read(ByteRange range, const UsePoint& use) {
    for (std::uint64_t i = range.begin; i < range.end; ++i) bytes_[i].read(use);
  }
  void note_write(ByteRange range, const UsePoint& use) {
    for (std::uint64_t i = range.begin; i < range.end; ++i) bytes_[i] = ByteUses{use, {}, {}};
  }
  Points before_read(ByteRange range) const {
    Points out;
    for (std::uint64_t i = range.begin; i < range.end; ++i) add(out, bytes_[i].writer.at());
    return out;
  }
  Points before_write(ByteRange range) const {
    Points out = before_read(range);
    for (std::uint64_t i = range.begin; i < range.end; ++i) {
      for (const auto& [stream, position] : bytes_[i].readers) add(out, {stream, position});
      for (const StreamPoint* cell : bytes_[i].cells) add(out, *cell);
    }
    return out;
  }
  void forget_cell(const StreamPoint* cell) {
    for (ByteUses& byte : bytes_) {
      if (byte.writer.cell() == cell) byte.writer = cell->position ? UsePoint{*cell} : UsePoint{};
      if (byte.cells.erase(cell) != 0) byte.read(UsePoint{*cell});
    }
  }
  template <class F>
  void prune(F&& finished) {
    for (ByteUses& byte : bytes_) {
      if (!byte.writer.cell() && finished(byte.writer.at())) byte.writer = {};
      std::erase_if(byte.readers, [&](const auto& r) {
        return finished(StreamPoint{r.first, r.second});
      });
    }
  }
  std::size_t segments() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (bytes_[i].used() && (i == 0 || !(bytes_[i - 1] == bytes_[i]))) ++count;
    }
    return count;
  }

private:
  static void add(Points& out, StreamPoint point) {
    if (point.position == 0) return;
    StreamPosition& position = out[point.stream];
    position = std::max(position, point.position);
  }
  std::vector<ByteUses> bytes_;
};

class Dice {
public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  ByteRange range(std::uint64_t bytes) {
    const std::uint64_t begin = below(bytes + 1);
    if (below(12) == 0) return {begin, begin};
    if (below(8) == 0) return {0, bytes};
    return {begin, std::min(bytes, begin + below(bytes / 2))};
  }

private:
  std::mt19937_64 engine_;
};

// Streams, graphs' cells, and both maps, to be driven at random.
struct Machine {
  static constexpr std::uint64_t bytes = 48;
  static constexpr StreamIndex streams = 5;
  static constexpr std::size_t graphs = 3;

  explicit Machine(std::uint64_t seed) : dice(seed) {
    for (std::size_t i = 0; i < graphs; ++i) cells[i] = {static_cast<StreamIndex>(i), 0};
  }

  UsePoint next_use() {
    if (dice.below(4) == 0) return in(cells[dice.below(graphs)]);
    const auto stream = static_cast<StreamIndex>(dice.below(streams));
    if (dice.below(4) != 0 || last[stream] == 0) ++last[stream];
    return at(stream, last[stream]);
  }
  void replay() {
    StreamPoint& cell = cells[dice.below(graphs)];
    cell.position = ++last[cell.stream];
  }
  void forget() {
    StreamPoint& cell = cells[dice.below(graphs)];
    uses.forget_cell(&cell);
    naive.forget_cell(&cell);
    cell.position = 0;
  }
  void prune() {
    StreamPosition done[streams];
    for (StreamIndex i = 0; i < streams; ++i) done[i] = dice.below(last[i] + 1);
    const auto finished = [&](StreamPoint point) { return point.position <= done[point.stream]; };
    uses.prune(finished);
    naive.prune(finished);
  }
  bool agree(ByteRange range) const {
    return before_read(uses, range) == naive.before_read(range) &&
           before_write(uses, range) == naive.before_write(range);
  }

  Points naive_plan(const std::vector<ByteRange>& writes,
                    const std::vector<ByteRange>& reads) const {
    Points out;
    const auto merge = [&out](const Points& more) {
      for (const auto& [stream, position] : more) out[stream] = std::max(out[stream], position);
    };
    for (const ByteRange range : writes) merge(naive.before_write(range));
    for (const ByteRange range : reads) merge(naive.before_read(range));
    return out;
  }

  Dice dice;
  StreamPoint cells[graphs];
  StreamPosition last[streams] = {};
  UseMap uses;
  NaiveUses naive{bytes};
};

}  // namespace

TEST_CASE("A read waits for writers and a write for readers as well", "[memory][I4]") {
  UseMap uses;
  CHECK(before_write(uses, hundred).empty());
  uses.note_write(hundred, at(1, 5));
  CHECK(before_read(uses, hundred) == Points{{1, 5}});
  uses.note_read(hundred, at(2, 7));
  uses.note_read(hundred, at(3, 9));
  uses.note_read(hundred, at(2, 8));
  CHECK(before_read(uses, hundred) == Points{{1, 5}});
  CHECK(before_write(uses, hundred) == Points{{1, 5}, {2, 8}, {3, 9}});
  uses.note_write(hundred, at(3, 10));
  CHECK(before_write(uses, hundred) == Points{{3, 10}});
  CHECK(uses.segments() == 1);
}

TEST_CASE("Disjoint slices of one allocation do not wait for each other", "[memory][I4]") {
  UseMap uses;
  uses.note_write({0, 50}, at(1, 1));
  uses.note_write({50, 100}, at(2, 1));
  CHECK(before_write(uses, {0, 50}) == Points{{1, 1}});
  CHECK(before_write(uses, {50, 100}) == Points{{2, 1}});
  CHECK(before_write(uses, {49, 51}) == Points{{1, 1}, {2, 1}});
  CHECK(before_write(uses, {100, 200}).empty());
  CHECK(before_write(uses, {50, 50}).empty());
  uses.note_read({25, 75}, at(3, 4));
  CHECK(before_write(uses, {0, 25}) == Points{{1, 1}});
  CHECK(before_write(uses, {74, 100}) == Points{{2, 1}, {3, 4}});
  CHECK(all(uses) == Points{{1, 1}, {2, 1}, {3, 4}});
}

TEST_CASE("Neighbours with the same uses are one segment", "[memory]") {
  UseMap uses;
  for (std::uint64_t i = 0; i < 10; ++i) uses.note_write({i * 10, i * 10 + 10}, at(1, 1));
  CHECK(uses.segments() == 1);
  uses.note_read({0, 50}, at(2, 1));
  CHECK(uses.segments() == 2);
  uses.note_read({40, 100}, at(2, 1));
  CHECK(uses.segments() == 1);
  uses.note_read({20, 30}, at(2, 2));
  CHECK(uses.segments() == 3);
  uses.prune([](StreamPoint point) { return point.stream == 2; });
  CHECK(uses.segments() == 1);
  uses.prune([](StreamPoint) { return true; });
  CHECK(uses.empty());
}

TEST_CASE("One store to a graph's cell moves all of its uses", "[memory]") {
  StreamPoint cell{4, 0};
  UseMap weights;
  UseMap output;
  weights.note_read(hundred, in(cell));
  output.note_write({0, 10}, in(cell));
  CHECK(before_write(weights, hundred).empty());
  cell.position = 3;
  CHECK(before_write(weights, hundred) == Points{{4, 3}});
  CHECK(before_read(weights, hundred).empty());
  CHECK(before_read(output, hundred) == Points{{4, 3}});

  // Finished or not, the next replay counts again.
  weights.prune([](StreamPoint) { return true; });
  output.prune([](StreamPoint) { return true; });
  cell.position = 8;
  CHECK(before_write(weights, hundred) == Points{{4, 8}});
  CHECK(before_read(output, hundred) == Points{{4, 8}});
  CHECK(all(output) == Points{{4, 8}});
}

TEST_CASE("A graph that goes leaves its last replay behind", "[memory]") {
  UseMap uses;
  {
    StreamPoint cell{4, 6};
    StreamPoint never{5, 0};
    uses.note_write(hundred, in(cell));
    uses.note_read({0, 50}, in(never));
    uses.note_read({50, 100}, at(1, 1));
    uses.note_read({50, 100}, in(cell));
    uses.forget_cell(&cell);
    uses.forget_cell(&never);
    cell.position = 99;
    never.position = 99;
    CHECK(before_write(uses, {0, 50}) == Points{{4, 6}});
    CHECK(before_write(uses, {50, 100}) == Points{{4, 6}, {1, 1}});
  }
  uses.prune([](StreamPoint point) { return point.position <= 6; });
  CHECK(uses.empty());
}

TEST_CASE("Whole-allocation uses by three streams cost no allocation", "[memory]") {
  Frontier out;
  const std::uint64_t before = host_allocations();
  UseMap uses;
  for (StreamPosition i = 1; i < 100; ++i) {
    uses.plan_write(hundred, out);
    uses.note_write(hundred, at(1, i));
    uses.plan_read(hundred, out);
    uses.note_read(hundred, at(2, i));
    uses.plan_read(hundred, out);
    uses.note_read(hundred, at(3, i));
    uses.before_write(hundred, out);
  }
  const std::uint64_t after = host_allocations();
  CHECK(after == before);
  CHECK(points(out) == Points{{1, 99}, {2, 99}, {3, 99}});
}

TEST_CASE("Only the first read of whole bytes is noted by the short way", "[memory]") {
  UseMap uses;
  CHECK_FALSE(uses.is_whole(hundred));
  CHECK_FALSE(uses.note_first_read(hundred, at(1, 1)));
  CHECK(uses.empty());
  uses.note_write(hundred, at(1, 1));
  CHECK(uses.is_whole(hundred));
  CHECK_FALSE(uses.is_whole({0, 99}));
  CHECK_FALSE(uses.note_first_read({0, 99}, at(2, 1)));
  CHECK(before_write(uses, hundred) == Points{{1, 1}});
  CHECK(uses.note_first_read(hundred, at(1, 1)));  // The writer's own: it is known already.
  CHECK(uses.note_first_read(hundred, at(2, 1)));
  CHECK_FALSE(uses.note_first_read(hundred, at(3, 1)));
  CHECK(before_write(uses, hundred) == Points{{1, 1}, {2, 1}});
  uses.note_write(hundred, at(3, 2));
  CHECK(uses.note_first_read(hundred, at(1, 2)));
  CHECK(before_write(uses, hundred) == Points{{1, 2}, {3, 2}});
  uses.note_write({0, 50}, at(1, 3));
  CHECK_FALSE(uses.is_whole(hundred));
  CHECK_FALSE(uses.is_whole({0, 50}));
}

TEST_CASE("The map of uses agrees with a naive one kept byte by byte", "[memory][I4]") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  Machine machine(seed);
  for (int step = 0; step < 100'000; ++step) {
    const ByteRange range = machine.dice.range(Machine::bytes);
    const std::uint64_t what = machine.dice.below(16);
    if (what < 6) {
      const UsePoint use = machine.next_use();
      machine.uses.note_read(range, use);
      machine.naive.note_read(range, use);
    } else if (what < 11) {
      const UsePoint use = machine.next_use();
      machine.uses.note_write(range, use);
      machine.naive.note_write(range, use);
    } else if (what < 14) {
      machine.replay();
    } else if (what == 14) {
      machine.forget();
    } else if (machine.dice.below(4) == 0) {
      machine.prune();
    }
    if (!machine.agree(machine.dice.range(Machine::bytes)) || !machine.agree({0, Machine::bytes})) {
      FAIL("the maps answer differently after step " << step << ", kind " << what);
    }
    if (machine.uses.segments() != machine.naive.segments()) {
      FAIL(machine.uses.segments() << " segments for " << machine.naive.segments() << " at step "
                                   << step << ", kind " << what);
    }
  }
  CHECK(all(machine.uses) == machine.naive.before_write({0, Machine::bytes}));
}

TEST_CASE("A use that was made ready is noted without memory", "[memory][fault]") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  Machine machine(seed);
  std::uint64_t faults = 0;
  for (int step = 0; step < 20'000; ++step) {
    std::vector<ByteRange> writes;
    std::vector<ByteRange> reads;
    for (std::uint64_t n = machine.dice.below(4); n > 0; --n) {
      writes.push_back(machine.dice.range(Machine::bytes));
    }
    for (std::uint64_t n = machine.dice.below(4); n > 0; --n) {
      reads.push_back(machine.dice.range(Machine::bytes));
    }
    const UsePoint use = machine.next_use();
    const bool plan = machine.dice.below(2) == 0;
    const auto ready_all = [&] {
      Frontier out;
      for (const ByteRange range : writes) {
        plan ? machine.uses.plan_write(range, out) : machine.uses.ready(range);
      }
      for (const ByteRange range : reads) {
        plan ? machine.uses.plan_read(range, out) : machine.uses.ready(range);
      }
      return points(out);
    };
    Points planned;
    for (std::uint64_t nth = 1;; ++nth) {
      HostMemoryFault fault(nth, HostMemoryFault::Flavour::once);
      try {
        planned = ready_all();
        break;
      } catch (const std::bad_alloc&) {
        ++faults;
      }
    }
    if (!machine.agree({0, Machine::bytes})) FAIL("making ready changed an answer at " << step);
    if (plan && planned != machine.naive_plan(writes, reads)) FAIL("planned otherwise at " << step);
    {
      HostMemoryFault fault(1);
      for (const ByteRange range : writes) machine.uses.note_write(range, use);
      for (const ByteRange range : reads) machine.uses.note_read(range, use);
    }
    for (const ByteRange range : writes) machine.naive.note_write(range, use);
    for (const ByteRange range : reads) machine.naive.note_read(range, use);
    for (int i = 0; i < 3; ++i) {
      if (!machine.agree(machine.dice.range(Machine::bytes))) FAIL("they differ at " << step);
    }
    if (machine.dice.below(3) == 0) machine.replay();
    if (machine.dice.below(16) == 0) machine.forget();
    if (machine.dice.below(64) == 0) machine.prune();
    // A map without spare room, so that the next command has to make some.
    if (machine.dice.below(4) == 0) machine.uses = UseMap(machine.uses);
  }
  CHECK(faults > 1'000);
}

TEST_CASE("Ranges of one command that touch are noted without memory", "[memory][fault]") {
  const StreamPoint cell{0, 1};
  UseMap uses;
  for (StreamIndex stream = 1; stream < 8; ++stream) uses.note_read(hundred, at(stream, 1));
  uses.note_write(hundred, in(cell));
  // The first note makes all the same again, and the cuts of the second are gone.
  Frontier out;
  uses.plan_write({20, 30}, out);
  uses.plan_write({10, 20}, out);
  {
    HostMemoryFault fault(1);
    uses.note_write({20, 30}, in(cell));
    uses.note_write({10, 20}, in(cell));
  }
  CHECK(uses.segments() == 1);
  CHECK(before_write(uses, hundred) == Points{{0, 1}});
}

TEST_CASE("Noting that runs out of memory changes no answer", "[memory][fault]") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  Machine machine(seed);
  std::uint64_t faults = 0;
  for (int step = 0; step < 10'000; ++step) {
    const ByteRange range = machine.dice.range(Machine::bytes);
    const UsePoint use = machine.next_use();
    const bool write = machine.dice.below(2) == 0;
    machine.uses = UseMap(machine.uses);
    for (std::uint64_t nth = 1;; ++nth) {
      bool failed = false;
      {
        HostMemoryFault fault(nth, HostMemoryFault::Flavour::once);
        try {
          write ? machine.uses.note_write(range, use) : machine.uses.note_read(range, use);
        } catch (const std::bad_alloc&) {
          failed = true;
        }
      }
      if (!failed) break;
      ++faults;
      if (!machine.agree(range) || !machine.agree({0, Machine::bytes})) {
        FAIL("a trace at step " << step);
      }
    }
    write ? machine.naive.note_write(range, use) : machine.naive.note_read(range, use);
    if (!machine.agree({0, Machine::bytes})) FAIL("they differ at step " << step);
    if (machine.dice.below(64) == 0) machine.prune();
  }
  CHECK(faults > 1'000);
}
