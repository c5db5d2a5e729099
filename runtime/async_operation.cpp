// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/async_operation.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/system_executor.hpp>

#include <string>

namespace reprise {

namespace {

class AsioCategory final : public boost::system::error_category {
public:
  const char* name() const noexcept override { return "reprise"; }
  std::string message(int value) const override {
    return std::string(to_string(static_cast<Errc>(value)));
  }
  boost::system::error_condition default_error_condition(int value) const noexcept override {
    const std::error_condition known = errc_category().default_error_condition(value);
    if (known.category() != std::generic_category()) return {value, *this};
    return {known.value(), boost::system::generic_category()};
  }
  bool equivalent(const boost::system::error_code& code, int condition) const noexcept override {
    if (code.category() == *this) return code.value() == condition;
    return condition == static_cast<int>(Errc::operation_aborted) &&
           code == boost::asio::error::operation_aborted;
  }
};

}  // namespace

const boost::system::error_category& asio_category() noexcept {
  static const AsioCategory category;
  return category;
}

boost::system::error_code to_asio_code(const FailurePtr& failure) noexcept {
  if (!failure) return {};
  if (failure->code == Errc::operation_aborted) return boost::asio::error::operation_aborted;
  return {static_cast<int>(failure->code), asio_category()};
}

bool detail::says(const boost::system::error_code& code, Errc condition) noexcept {
  return code == make_error_condition(condition) ||
         static_cast<std::error_code>(code) == make_error_code(condition);
}

namespace detail {

void run_on_system(Job& job, JobLoop& loop, std::shared_ptr<const void> keep) noexcept {
  REPRISE_MARK("handler_after_close");
  if (is_free_of_user_code(this_thread_role())) {
    loop.post(job);  // which keeps it for its own end
    return;
  }
  try {
    asio::post(asio::system_executor(),
               [&job, &loop, keep = std::move(keep)] { loop.run_here(job); });
  } catch (...) {
    job.destroy(job);
  }
}

}  // namespace detail

}  // namespace reprise
