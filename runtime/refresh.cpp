// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph.hpp>

#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/graph_state.hpp>
#include <reprise/runtime/reply_cell.hpp>
#include <reprise/runtime/verbs.hpp>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace reprise {

namespace detail {

namespace {

// Contents up to here travel inside the operation.
constexpr std::uint64_t inline_bytes = 512;

struct FoundSlot {
  std::shared_ptr<GraphState> graph;
  std::uint32_t slot = 0;

  const RecordedSlot& recorded() const noexcept { return graph->recording->slots().slots()[slot]; }
  bool is_output() const noexcept { return may_write(recorded().access); }
  Rotation& rotation() const noexcept { return *graph->rotation; }
};

FoundSlot find_slot(const Graph& graph, std::string_view name, const char* verb) {
  const auto& state = device_state_of(graph, verb);
  const std::uint32_t slot = state->recording->slots().find(name);
  if (slot == SlotTable::none) {
    throw Failure(Errc::no_such_slot, verb, "the graph has no slot '" + std::string(name) + "'");
  }
  return {state, slot};
}

/// Writes one copy of a slot, which is chosen when its ticket is served: from then on it is the
/// newest, whatever becomes of the write.
class RefreshOperation final : public Operation {
public:
  explicit RefreshOperation(FoundSlot found) noexcept
      : Operation("refresh"), found_(std::move(found)) {
    logical = found_.graph->refresher;
    settles = true;
  }

  std::string_view name() const noexcept override { return found_.recorded().name; }
  void settle(Actor& /*actor*/) noexcept override {
    Rotation& rotation = found_.rotation();
    const std::uint32_t number =
        rotation.next_free(found_.slot, [](const Rotation::Copy& /*copy*/) { return true; });
    rotation.set_missed(found_.slot, number == Rotation::none);
    if (number == Rotation::none) return;
    rotation.set_newest(found_.slot, number);
    const Rotation::Copy& copy = rotation.copy(found_.slot, number);
    touch_ = {copy.hold, copy.range, Access::must_write};
    touches = {&touch_, 1};
  }
  void accept(Actor& actor) override {
    if (touches.empty()) {
      add_one(found_.graph->lease_held);
      return actor.refuse(*this, Errc::lease_held, "every copy of the slot is leased");
    }
    if (touch_.range.empty()) return actor.done(*this);
    command =
        command::Write{touch_.hold->device.address + touch_.range.begin, from, touch_.range.size()};
    actor.run(*this);
  }
  void was_accepted(Actor& /*actor*/) noexcept override { add_one(found_.graph->refreshes); }
  void failed_with(const FailurePtr& failure) noexcept override {
    found_.graph->note_failure(failure);
  }

  const std::byte* from = nullptr;
  std::shared_ptr<const std::byte[]> kept;

private:
  FoundSlot found_;
  Touch touch_;
};

FoundSlot check_refresh(const Graph& graph, std::string_view name, std::uint64_t bytes,
                        const std::type_info* element) {
  FoundSlot found = find_slot(graph, name, "refresh");
  const RecordedSlot& slot = found.recorded();
  const auto fail = [&](Errc code, const std::string& what) {
    throw Failure(code, "refresh", "slot '" + slot.name + "' " + what);
  };
  if (slot.is_input && found.is_output()) {
    fail(Errc::invalid_argument, "is read and written by each replay");
  }
  if (slot.range.size() != bytes) {
    fail(Errc::size_mismatch,
         "takes " + std::to_string(slot.range.size()) + " bytes, not " + std::to_string(bytes));
  }
  if (slot.element != nullptr && element != nullptr && *slot.element != *element) {
    fail(Errc::invalid_argument, "has elements of another type");
  }
  return found;
}

Operation* make_refresh(FoundSlot found, std::span<const std::byte> bytes) {
  DeviceCore& core = *found.graph->logical->core;
  if (bytes.size() > inline_bytes) {
    KeptBytes kept = keep_bytes(bytes);
    auto* const operation = core.make<RefreshOperation>(0, std::move(found));
    operation->kept = std::move(kept.data);
    operation->from = operation->kept.get();
    return operation;
  }
  auto* const operation = core.make<RefreshOperation>(bytes.size(), std::move(found));
  std::byte* const copy = DeviceCore::extra(*operation);
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  operation->from = copy;
  return operation;
}

/// Takes the lease when its ticket is served, and hands it over in its turn.
class LeaseOperation final : public Operation {
public:
  LeaseOperation(FoundSlot found, ValueReply<OutputLease>& reply) noexcept
      : Operation("lease"), found_(std::move(found)), reply_(reply) {
    settles = true;
    accepted = Completion(&reply_);
  }

  std::string_view name() const noexcept override { return found_.recorded().name; }
  void settle(Actor& /*actor*/) noexcept override {
    Rotation& rotation = found_.rotation();
    if (!rotation.is_missed(found_.slot)) lease_ = rotation.lease(found_.slot);
  }
  void accept(Actor& actor) override {
    if (!lease_) {
      add_one(found_.graph->lease_held);
      return actor.refuse(*this, Errc::lease_held,
                          "every copy of the slot is leased, and none has its newest contents");
    }
    reply_.value = std::move(lease_);
    actor.done(*this);
  }

private:
  FoundSlot found_;
  ValueReply<OutputLease>& reply_;
  OutputLease lease_;
};

Operation* make_lease(const Graph& graph, std::string_view name, ValueReply<OutputLease>& reply) {
  FoundSlot found = find_slot(graph, name, "lease");
  if (found.recorded().is_input || !found.is_output()) {
    throw Failure(Errc::invalid_argument, "lease",
                  "slot '" + std::string(name) + "' is not one that replays only write");
  }
  return found.graph->logical->core->make<LeaseOperation>(0, found, reply);
}

class LeaseReply final : public ValueReply<OutputLease> {
public:
  bool has_blocked_caller() const noexcept override { return true; }
  void complete(const FailurePtr& failure) noexcept override { blocked.complete(failure); }

  BlockingReply blocked;
};

}  // namespace

void refresh(const Graph& graph, std::string_view slot, std::span<const std::byte> bytes,
             const std::type_info* element) {
  FoundSlot found = check_refresh(graph, slot, bytes.size(), element);
  if (!found.is_output()) return post(make_refresh(std::move(found), bytes));
  refuse_library_threads("refresh");
  Operation* const operation = make_refresh(std::move(found), bytes);
  BlockingReply reply;
  operation->accepted = Completion(&reply);
  operation->logical->core->call(operation, reply);
}

bool try_refresh(const Graph& graph, std::string_view slot, std::span<const std::byte> bytes,
                 const std::type_info* element) {
  return try_post(make_refresh(check_refresh(graph, slot, bytes.size(), element), bytes));
}

void start_refresh(const Graph& graph, std::string_view slot, std::span<const std::byte> bytes,
                   const std::type_info* element, Reply* reply) noexcept {
  post_accepted(reply, "refresh", [&] {
    return make_refresh(check_refresh(graph, slot, bytes.size(), element), bytes);
  });
}

void start_lease(const Graph& graph, std::string_view slot,
                 ValueReply<OutputLease>& reply) noexcept {
  Operation* operation = nullptr;
  try {
    operation = make_lease(graph, slot, reply);
  } catch (...) {
    return answer_exception(&reply, "lease");
  }
  GraphAccess::state(graph)->logical->core->post_async(operation);
}

}  // namespace detail

OutputLease Graph::lease(std::string_view slot) const {
  detail::refuse_library_threads("lease");
  detail::LeaseReply reply;
  detail::Operation* const operation = detail::make_lease(*this, slot, reply);
  state_->logical->core->call(operation, reply.blocked);
  return std::move(reply.value);
}

}  // namespace reprise
