// What rows may still grow to, in bytes of key/value state: nothing is promised twice and nothing
// is forgotten. A value of the engine thread; reservations give back what they hold when they go,
// and must go before their ledger.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace mantou {

class Ledger {
 public:
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept
        : ledger_(std::exchange(other.ledger_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Reservation& operator=(Reservation&& other) noexcept {
      if (this == &other) return *this;
      release();
      ledger_ = std::exchange(other.ledger_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      return *this;
    }
    ~Reservation() { release(); }

    uint64_t bytes() const { return bytes_; }

   private:
    friend class Ledger;
    Reservation(Ledger* ledger, uint64_t bytes) : ledger_(ledger), bytes_(bytes) {}
    void release() {
      if (ledger_) ledger_->reserved_ -= bytes_;
      ledger_ = nullptr;
      bytes_ = 0;
    }

    Ledger* ledger_ = nullptr;
    uint64_t bytes_ = 0;
  };

  explicit Ledger(uint64_t budget) : budget_(budget) {}
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  uint64_t budget() const { return budget_; }
  uint64_t reserved() const { return reserved_; }

  // Nothing when so much is not free now.
  std::optional<Reservation> reserve(uint64_t bytes) {
    if (bytes > budget_ - reserved_) return std::nullopt;
    reserved_ += bytes;
    return Reservation(this, bytes);
  }

 private:
  const uint64_t budget_;
  uint64_t reserved_ = 0;
};

}  // namespace mantou
