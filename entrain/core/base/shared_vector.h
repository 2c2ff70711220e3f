// A vector whose copies share their items until one of them is changed.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace entrain {

// Acts as a std::vector<T>. Access that could change an item (through an object that is not const)
// gives the object items of its own first; begin() of const objects tells whether two share them.
// Errors   as std::vector.
// Cost     a copy: O(1); the first change of a shared one: O(size).
// Threads  copies may be read by different threads. An object may be changed while its copies are
//          read, but not while another thread destroys or assigns to one of them.
template <class T>
class SharedVector {
 public:
  // No moves: they would leave an object without items.
  SharedVector() = default;
  SharedVector(const SharedVector&) = default;
  SharedVector& operator=(const SharedVector&) = default;
  ~SharedVector() = default;

  // Readers of vectors take it as it is.
  operator const std::vector<T>&() const { return *items_; }
  [[nodiscard]] std::size_t size() const { return items_->size(); }
  [[nodiscard]] bool empty() const { return items_->empty(); }
  [[nodiscard]] const T* begin() const { return items_->data(); }
  [[nodiscard]] const T* end() const { return items_->data() + items_->size(); }
  [[nodiscard]] const T& operator[](std::size_t index) const { return (*items_)[index]; }
  [[nodiscard]] const T& at(std::size_t index) const { return items_->at(index); }
  [[nodiscard]] const T& front() const { return items_->front(); }
  [[nodiscard]] T* begin() { return own().data(); }
  [[nodiscard]] T* end() { return own().data() + items_->size(); }
  [[nodiscard]] T& operator[](std::size_t index) { return own()[index]; }
  [[nodiscard]] T& front() { return own().front(); }

  // The items, to be changed as a whole.
  [[nodiscard]] std::vector<T>& own() {
    if (items_.use_count() > 1) {
      items_ = std::make_shared<std::vector<T>>(*items_);
    }
    return *items_;
  }

 private:
  std::shared_ptr<std::vector<T>> items_ = std::make_shared<std::vector<T>>();
};

}  // namespace entrain
