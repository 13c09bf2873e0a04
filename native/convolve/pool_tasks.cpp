#include "pool_tasks.h"

#include <pthread.h>

#include <atomic>
#include <new>

namespace podium {
namespace {

// One `run`, kept alive by every thread that was asked to help: some come when all is done. Counted and waited for
// without shared_ptr and condition_variable, which tie a library to the C library (2.32) and to the C++ library
// (GCC 12) that it was compiled with; this wheel is for older ones too.
struct Work {
  int64_t count;
  void (*call)(const void*, int64_t);
  const void* task;
  std::atomic<int64_t> next{0}, done{0};
  std::atomic<bool> failed{false};
  std::atomic<int64_t> holders{1};
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t all_done = PTHREAD_COND_INITIALIZER;

  void help() {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      try {
        call(task, i);
      } catch (...) {  // working memory was refused; the caller throws
        failed = true;
      }
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
        pthread_mutex_lock(&lock);
        pthread_cond_broadcast(&all_done);
        pthread_mutex_unlock(&lock);
      }
    }
  }

  void wait() {
    for (int spin = 0; spin < 2000 && done.load(std::memory_order_acquire) < count; ++spin) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    pthread_mutex_lock(&lock);
    while (done.load(std::memory_order_acquire) < count) pthread_cond_wait(&all_done, &lock);
    pthread_mutex_unlock(&lock);
  }

  void let_go() {
    if (holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  ~Work() {
    pthread_cond_destroy(&all_done);
    pthread_mutex_destroy(&lock);
  }
};

void help_and_forget(void* data) {
  auto* work = static_cast<Work*>(data);
  work->help();
  work->let_go();
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
  auto* work = new Work;
  work->count = count;
  work->call = call;
  work->task = task;
  const int64_t helpers = (count < threads_ ? count : threads_) - 1;
  for (int64_t i = 0; i < helpers; ++i) {
    work->holders.fetch_add(1, std::memory_order_relaxed);
    XLA_FFI_ThreadPool_Schedule_Args args{XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, nullptr, frame_->ctx,
                                          help_and_forget, work};
    if (XLA_FFI_Error* error = frame_->api->XLA_FFI_ThreadPool_Schedule(&args)) {
      work->let_go();
      XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
      frame_->api->XLA_FFI_Error_Destroy(&destroy);
      break;
    }
  }
  work->help();
  work->wait();
  const bool failed = work->failed;
  work->let_go();
  if (failed) throw std::bad_alloc();
}

}  // namespace podium
