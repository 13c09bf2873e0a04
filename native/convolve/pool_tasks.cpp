#include "pool_tasks.h"

#include <new>

namespace podium {
namespace {

// One `run`, kept alive by every thread that was asked to help: some come when all is done.
struct Work {
  int64_t count;
  void (*call)(const void*, int64_t);
  const void* task;
  std::atomic<int64_t> next{0}, done{0};
  std::atomic<bool> failed{false};
  std::mutex lock;
  std::condition_variable all_done;

  void help() {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      try {
        call(task, i);
      } catch (...) {  // working memory was refused; the caller throws
        failed = true;
      }
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
        std::lock_guard<std::mutex> hold(lock);
        all_done.notify_all();
      }
    }
  }

  void wait() {
    for (int spin = 0; spin < 2000 && done.load(std::memory_order_acquire) < count; ++spin) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    std::unique_lock<std::mutex> hold(lock);
    all_done.wait(hold, [&] { return done.load(std::memory_order_acquire) >= count; });
  }
};

void help_and_forget(void* data) {
  auto* work = static_cast<std::shared_ptr<Work>*>(data);
  (*work)->help();
  delete work;
}

}  // namespace

PoolTasks::PoolTasks(const XLA_FFI_CallFrame* frame) : frame_(frame) {
  int64_t threads = 0;
  XLA_FFI_ThreadPool_NumThreads_Args args{XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                          &threads};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_ThreadPool_NumThreads(&args)) {
    XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
    frame->api->XLA_FFI_Error_Destroy(&destroy);
  }
  if (threads > 1) threads_ = threads;
}

void PoolTasks::start(int64_t count, void (*call)(const void*, int64_t), const void* task) {
  auto work = std::make_shared<Work>();
  work->count = count;
  work->call = call;
  work->task = task;
  const int64_t helpers = (count < threads_ ? count : threads_) - 1;
  for (int64_t i = 0; i < helpers; ++i) {
    auto* shared = new std::shared_ptr<Work>(work);
    XLA_FFI_ThreadPool_Schedule_Args args{XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, nullptr, frame_->ctx,
                                          help_and_forget, shared};
    if (XLA_FFI_Error* error = frame_->api->XLA_FFI_ThreadPool_Schedule(&args)) {
      delete shared;
      XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
      frame_->api->XLA_FFI_Error_Destroy(&destroy);
      break;
    }
  }
  work->help();
  work->wait();
  if (work->failed) throw std::bad_alloc();
}

}  // namespace podium
