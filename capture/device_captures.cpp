// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/device_captures.hpp>

#include <algorithm>

namespace reprise {

using Phase = detail::CaptureTable::Phase;

bool CaptureStatus::is_capturing(StreamId stream) const noexcept {
  // Acquire: pairs with the release in DeviceCaptures::change().
  if (table_->active.load(std::memory_order_acquire) == 0) return false;
  const std::scoped_lock lock(table_->mutex);
  return std::any_of(table_->entries.begin(), table_->entries.end(), [&](const auto& entry) {
    return entry.phase != Phase::none && entry.owner == stream;
  });
}

DeviceCaptures::DeviceCaptures()
    : table_(std::make_shared<detail::CaptureTable>()), status_(CaptureStatus{table_}) {}

DeviceCaptures::Key DeviceCaptures::enter() {
  const std::scoped_lock lock(table_->mutex);
  table_->entries.push_back({last_key_ + 1, 0, Phase::none});
  return ++last_key_;
}

template <class F>
void DeviceCaptures::change(Key key, F&& f) noexcept {
  const std::scoped_lock lock(table_->mutex);
  auto& entries = table_->entries;
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const auto& entry) { return entry.key == key; });
  if (found == entries.end()) return;
  f(found);
  std::uint32_t active = 0;
  std::uint32_t recording = 0;
  for (const auto& entry : entries) {
    active += entry.phase != Phase::none;
    recording += entry.phase == Phase::recording;
  }
  // Release: pairs with the acquire loads of CaptureStatus.
  table_->recording.store(recording, std::memory_order_release);
  table_->active.store(active, std::memory_order_release);
}

void DeviceCaptures::leave(Key key) noexcept {
  change(key, [&](auto entry) { table_->entries.erase(entry); });
}

void DeviceCaptures::prepared(Key key, StreamId owner) noexcept {
  change(key, [&](auto entry) {
    entry->owner = owner;
    entry->phase = Phase::preparing;
  });
}

void DeviceCaptures::began(Key key) noexcept {
  change(key, [](auto entry) {
    if (entry->phase == Phase::preparing) entry->phase = Phase::recording;
  });
}

void DeviceCaptures::ended(Key key) noexcept {
  change(key, [](auto entry) {
    entry->owner = 0;
    entry->phase = Phase::none;
  });
}

}  // namespace reprise
