// SPDX-License-Identifier: Apache-2.0
// The real channel under every interleaving of a few small programs, and with bugs planted in it.
#if !defined(__SANITIZE_THREAD__)
#include <reprise/runtime/channel.hpp>

#include "support/explorer.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace reprise::test {
namespace {

/// What stands in for moodycamel's queue: one step to put, one to take.
class SteppedQueue {
public:
  bool enqueue(ControlNode* node) {
    switch_point();
    if (refuses) return false;
    nodes_.push_back(node);
    changed();
    return true;
  }

  std::size_t try_dequeue_bulk(ControlNode** to, std::size_t max) {
    switch_point();
    const std::size_t count = std::min(max, nodes_.size());
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = nodes_.front();
      nodes_.pop_front();
    }
    if (count != 0) changed();
    return count;
  }

  static inline bool refuses = false;

private:
  std::deque<ControlNode*> nodes_;
};

constexpr ChannelPlant no_plant{0};

template <ChannelPlant plant>
struct SteppedTraits {
  template <class T>
  using Atomic = Stepped<T>;
  using Queue = SteppedQueue;
  using Mutex = SteppedMutex;
  static constexpr bool planted(ChannelPlant which) noexcept { return which == plant; }
};

struct Shape {
  unsigned producers = 2;
  unsigned sends = 2;
  unsigned frees = 1;
  bool close = true;
  bool trying = false;           // the last producer uses try_submit
  bool without_credit = false;   // the first producer's first send has none
  bool timed_park = false;       // the consumer's first park may end by itself
  bool waits_for_posts = false;  // the consumer leaves only after every control node
  bool queue_refuses = false;    // every control node is spilled
  std::uint64_t first_ticket = 0;
};

template <ChannelPlant plant>
class ChannelProgram final : public Scenario, private WakeTarget {
public:
  explicit ChannelProgram(const Shape& shape)
      : shape_(shape), sent_(shape.producers * shape.sends), late_(sent_.size()),
        free_(shape.frees), channel_(options(), *this) {
    SteppedQueue::refuses = shape.queue_refuses;
    for (Free& node : free_) {
      node.run = [](ControlNode& n, void*) noexcept { ++static_cast<Free&>(n).served; };
    }
  }

  std::vector<Task> tasks() override {
    std::vector<Task> tasks;
    tasks.push_back({[this] { consume(); }, !shape_.close});
    for (unsigned p = 0; p < shape_.producers; ++p) tasks.push_back({[this, p] { produce(p); }});
    for (Free& node : free_)
      tasks.push_back({[this, &node] { node.accepted = channel_.post(node); }});
    if (shape_.close) tasks.push_back({[this] { channel_.close(); }});
    return tasks;
  }

  void check() override {
    unsigned accepted = 0;
    for (const Sent& sent : sent_) accepted += sent.closed || sent.refused ? 0 : 1;
    require(served_.size() == accepted, "delivered + refused differs from sent");
    for (auto& late : late_) late.clear();
    require(alive_ == 0, "a command was not destroyed once");
    require(tokens_ == 0, "a token is left over");
    for (const Free& node : free_) {
      require(node.served + node.answered_closed == 1, "a control node was not served once");
      require(!node.accepted || node.served == 1, "an accepted control node was answered closed");
    }
    for (const Sent& a : sent_)
      for (const Sent& b : sent_)
        if (a.place && b.place && a.ended < b.began)
          require(*a.place < *b.place, "two submissions changed places");
  }

private:
  struct Sent {
    std::uint64_t began = 0;
    std::uint64_t ended = 0;
    bool closed = false;
    bool refused = false;
    std::optional<std::size_t> place;
  };

  struct Free : ControlNode {
    Free() noexcept : ControlNode(nullptr) {}
    unsigned served = 0;
    unsigned answered_closed = 0;
    bool accepted = false;
  };

  struct Command {
    Command(ChannelProgram& p, unsigned i) noexcept : program(&p), index(i) { ++p.alive_; }
    Command(Command&& from) noexcept : program(from.program), index(from.index) {
      ++program->alive_;
    }
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;
    Command& operator=(Command&&) = delete;
    ~Command() { --program->alive_; }
    void operator()(void*) noexcept { program->serve(index); }

    ChannelProgram* program;
    unsigned index;
  };

  ChannelOptions options() {
    return {.capacity = 2,
            .first_ticket = shape_.first_ticket,
            .closed_item = [](ControlNode& n, void*) noexcept {
              ++static_cast<Free&>(n).answered_closed;
            }};
  }

  void wake() noexcept override {
    switch_point();
    require(tokens_ == 0, "two tokens");
    ++tokens_;
    changed();
  }

  void serve(unsigned index) noexcept {
    require(!sent_[index].place, "served twice");
    sent_[index].place = served_.size();
    served_.push_back(index);
  }

  void produce(unsigned p) {
    for (unsigned k = 0; k < shape_.sends; ++k) {
      const unsigned index = p * shape_.sends + k;
      Sent& sent = sent_[index];
      sent.began = ++clock_;
      Admission admission = Admission::would_block;
      Command command(*this, index);
      if (shape_.trying && p + 1 == shape_.producers) {
        admission = channel_.try_submit(std::move(command), true);
        sent.refused = admission == Admission::would_block;
      } else {
        const bool credit = !(shape_.without_credit && index == 0);
        admission = channel_.submit(std::move(command), late_[index], credit);
        require(credit || admission != Admission::in_slot, "a slot without credit");
      }
      sent.closed = admission == Admission::closed;
      sent.ended = ++clock_;
    }
  }

  void consume() {
    std::uint64_t ticket = shape_.first_ticket;
    bool may_time_out = shape_.timed_park;
    std::size_t posts_seen = 0;
    for (;;) {
      const std::uint64_t since = changes();
      posts_seen += channel_.drain_control([](ControlNode& n) { n.run(n, nullptr); });
      if (channel_.consume([&](const ChannelItem& item) noexcept {
            require(item.ticket == ticket, "a ticket out of turn");
            item.run(nullptr);
          })) {
        ticket = (ticket + 1) & TicketPosition::ticket_mask;
        continue;
      }
      if (channel_.has_unpublished()) {
        wait_for_change(since);
        continue;
      }
      const bool may_leave = !shape_.waits_for_posts || posts_seen == free_.size();
      switch (channel_.try_park(may_leave)) {
        case Program::Idle::stopped: return;
        case Program::Idle::busy: break;
        case Program::Idle::parked:
          if (may_time_out && choose(2) == 1) {
            may_time_out = false;
            if (channel_.unpark()) break;
          }
          block_until([this] { return tokens_ != 0; });
          --tokens_;
      }
    }
  }

  using Program = BasicChannel<SteppedTraits<plant>>;

  const Shape shape_;
  unsigned alive_ = 0;
  unsigned tokens_ = 0;
  std::uint64_t clock_ = 0;
  std::vector<Sent> sent_;
  std::deque<Late<Command>> late_;
  std::deque<Free> free_;
  Program channel_;
  std::vector<unsigned> served_;
};

template <ChannelPlant plant = no_plant>
MakeScenario program(const Shape& shape) {
  return [shape] { return std::make_unique<ChannelProgram<plant>>(shape); };
}

std::uint64_t seed() {
  const char* const text = std::getenv("REPRISE_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 20240611;
}

/// Under a sanitizer a step costs ten times as much: one preemption less.
#if defined(__SANITIZE_ADDRESS__)
constexpr unsigned slower = 1;
#else
constexpr unsigned slower = 0;
#endif

void require_clean(const Exploration& found) {
  CAPTURE(found.schedule, found.schedules);
  REQUIRE(found.failure == "");
}

}  // namespace

TEST_CASE("exploring two producers and a closer finds every submission served in order or refused",
          "[runtime][channel][sim][I10][I11][I12]") {
  const Exploration found = explore_all(program({.frees = 0}), 3 - slower);
  require_clean(found);
  REQUIRE(found.complete);
}

TEST_CASE("exploring a control post beside producers and a closer finds it served exactly once",
          "[runtime][channel][sim][I11]") {
  require_clean(explore_all(program({.sends = 1, .frees = 1}), 2 - slower));
  require_clean(explore_all(program({.producers = 1, .sends = 1, .frees = 2}), 2 - slower));
  // The same when the consumer waits for the node before it leaves.
  require_clean(explore_all(program({.sends = 1, .waits_for_posts = true}), 2 - slower));
  // The same when every node has to go on the intrusive stack.
  require_clean(explore_all(program({.sends = 1, .queue_refuses = true}), 2 - slower));
}

TEST_CASE("exploring a consumer that nobody stops finds no submission left behind by its sleep",
          "[runtime][channel][sim][I11]") {
  require_clean(explore_all(program({.frees = 0, .close = false}), 3 - slower));
  require_clean(explore_all(program({.sends = 1, .frees = 1, .close = false}), 2 - slower));
}

TEST_CASE("exploring a park that may time out finds one token or none and nothing lost",
          "[runtime][channel][sim][I11]") {
  require_clean(explore_all(program({.sends = 1, .frees = 0, .timed_park = true}), 2 - slower));
  require_clean(explore_all(program({.frees = 0, .close = false, .timed_park = true}), 2 - slower));
}

TEST_CASE("exploring submissions without credit and attempts finds the order kept",
          "[runtime][channel][sim][I9][I10]") {
  require_clean(explore_all(program({.frees = 0, .trying = true}), 2 - slower));
  require_clean(explore_all(program({.frees = 0, .without_credit = true}), 2 - slower));
}

TEST_CASE("exploring tickets across the wrap finds what it finds elsewhere",
          "[runtime][channel][sim][I12]") {
  for (const std::uint64_t before : {1, 3}) {
    const std::uint64_t first = TicketPosition::ticket_mask + 1 - before;
    require_clean(explore_all(program({.frees = 0, .first_ticket = first}), 2 - slower));
  }
}

TEST_CASE("random schedules of a larger program keep the order and lose nothing",
          "[runtime][channel][sim][I11][I12]") {
  CAPTURE(seed());
  const std::uint64_t runs = slower != 0 ? 3'000 : 20'000;
  const Shape large{.producers = 3, .sends = 3, .frees = 2};
  require_clean(explore_random(program(large), seed(), runs, 5));
  const Shape mixed{.producers = 3, .sends = 4, .trying = true, .without_credit = true};
  require_clean(explore_random(program(mixed), seed() + 1, runs, 4));
}

TEST_CASE("every interleaving with three preemptions of a control post two producers and a closer",
          "[runtime][channel][.][long]") {
  const Exploration found = explore_all(program({.sends = 1}), 3);
  require_clean(found);
  REQUIRE(found.complete);
  // With two sends each there are too many; a sample of them.
  CAPTURE(seed());
  require_clean(explore_random(program({}), seed() + 2, 300'000, 4));
}

TEMPLATE_TEST_CASE_SIG("a bug planted in the channel is found and its schedule shows it again",
                       "[runtime][channel][sim]", ((ChannelPlant plant), plant),
                       ChannelPlant::late_without_control, ChannelPlant::close_without_wake,
                       ChannelPlant::skip_wake, ChannelPlant::park_ignores_control,
                       ChannelPlant::late_unsorted) {
  // Out of order within a bucket takes six tickets on two slots.
  const Shape shape = plant == ChannelPlant::late_unsorted ? Shape{.sends = 3, .frees = 0}
                                                           : Shape{.sends = 2, .frees = 1};
  const Exploration found = explore_all(program<plant>(shape), 2, 1'000'000);
  CAPTURE(found.schedules);
  REQUIRE(found.failure != "");
  CHECK(replay(program<plant>(shape), found.schedule).failure == found.failure);
  require_clean(replay(program(shape), found.schedule));
}

}  // namespace reprise::test

#endif
