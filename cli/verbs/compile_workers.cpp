#include "cli/verbs/compile_workers.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <vector>

namespace fovea::cli {
namespace {

constexpr std::size_t most_text = std::size_t{32} << 10;
using Work = std::function<WorkResult(std::size_t)>;

volatile std::sig_atomic_t stop_signal = 0;
void note_signal(int signal) { stop_signal = signal; }

// While it lives, a first Ctrl-C ends the work in good order.
class SignalGuard {
 public:
  SignalGuard() {
    stop_signal = 0;
    struct sigaction action{};
    action.sa_handler = note_signal;  // without SA_RESTART: poll() shall return
    ::sigaction(SIGINT, &action, &interrupt_);
    ::sigaction(SIGTERM, &action, &terminate_);
  }
  ~SignalGuard() { restore(); }
  void restore() {
    ::sigaction(SIGINT, &interrupt_, nullptr);
    ::sigaction(SIGTERM, &terminate_, nullptr);
  }

 private:
  struct sigaction interrupt_{}, terminate_{};
};

// What goes through a socket that keeps packets apart.
struct Packet {
  Outcome outcome;
  double seconds;
};

void send_result(int socket, const WorkResult& result) {
  const Packet head{result.outcome, result.seconds};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += result.text.substr(0, most_text);
  ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// False: the other side is gone.
bool receive_result(int socket, WorkResult& result) {
  std::string bytes(sizeof(Packet) + most_text, '\0');
  const ssize_t size = ::recv(socket, bytes.data(), bytes.size(), 0);
  if (size < static_cast<ssize_t>(sizeof(Packet))) return false;
  Packet head{};
  std::memcpy(&head, bytes.data(), sizeof head);
  result = {head.outcome, head.seconds,
            bytes.substr(sizeof head, static_cast<std::size_t>(size) - sizeof head)};
  return true;
}

[[noreturn]] void serve(int socket, const Work& work) {
  for (std::size_t i = 0; ::recv(socket, &i, sizeof i, 0) == sizeof i;) {
    WorkResult result;
    try {
      result = work(i);
    } catch (const std::exception& error) {
      result = {Outcome::Failed, 0, error.what()};
    }
    send_result(socket, result);
  }
  ::_exit(0);  // nothing of the parent's is to be destroyed here
}

class Worker {
 public:
  bool is_busy() const { return pid_ > 0; }
  int socket() const { return socket_; }
  std::size_t piece() const { return piece_; }

  void give(std::size_t piece) {
    piece_ = piece;
    ::send(socket_, &piece, sizeof piece, MSG_NOSIGNAL);  // if it died, recv() will tell
  }

  // How it ended.
  std::string finish() {
    ::close(socket_);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    if (!WIFSIGNALED(status)) return "exit status " + std::to_string(WEXITSTATUS(status));
    return "signal " + std::to_string(WTERMSIG(status)) + ", " + ::strsignal(WTERMSIG(status));
  }
  void kill() { ::kill(pid_, SIGKILL); }

  void start(const Work& work, const std::vector<Worker>& all, SignalGuard& signals) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      throw std::runtime_error(std::string("no socket for a worker: ") + std::strerror(errno));
    }
    std::cout.flush();
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
    if (pid_ == 0) {
      signals.restore();
      ::close(ends[0]);
      // Else a worker would not see that this process has ended.
      for (const Worker& other : all) {
        if (&other != this && other.is_busy()) ::close(other.socket());
      }
      serve(ends[1], work);
    }
    ::close(ends[1]);
    socket_ = ends[0];
  }

 private:
  pid_t pid_ = 0;
  int socket_ = -1;
  std::size_t piece_ = 0;
};

struct Crew {
  std::vector<Worker> workers;
  SignalGuard signals;
  ~Crew() {
    for (Worker& worker : workers) {
      if (!worker.is_busy()) continue;
      worker.kill();
      worker.finish();
    }
  }
};

std::vector<pollfd> sockets_of(const std::vector<Worker>& workers) {
  std::vector<pollfd> out;
  for (const Worker& worker : workers) {
    out.push_back({worker.is_busy() ? worker.socket() : -1, POLLIN, 0});  // -1 is passed over
  }
  return out;
}

}  // namespace

void work_side_by_side(std::size_t count, std::size_t jobs, const Work& work,
                       const std::function<bool(std::size_t, const WorkResult&)>& done) {
  Crew crew{std::vector<Worker>(std::max<std::size_t>(1, std::min(jobs, count))), {}};
  std::size_t next = 0, finished = 0;
  // A worker is started when it gets its first piece, and again if it died.
  const auto give_next = [&](Worker& worker) {
    if (next == count) {
      if (worker.is_busy()) worker.finish();
      return;
    }
    if (!worker.is_busy()) worker.start(work, crew.workers, crew.signals);
    worker.give(next++);
  };
  for (Worker& worker : crew.workers) give_next(worker);
  while (finished < count) {
    std::vector<pollfd> sockets = sockets_of(crew.workers);
    const int ready = ::poll(sockets.data(), sockets.size(), -1);
    if (stop_signal != 0) throw std::runtime_error("stopped; nothing was written");
    if (ready < 0 && errno != EINTR) throw std::runtime_error(std::strerror(errno));
    for (std::size_t i = 0; i < sockets.size() && ready > 0; ++i) {
      if (sockets[i].revents == 0) continue;
      Worker& worker = crew.workers[i];
      WorkResult result;
      if (!receive_result(worker.socket(), result)) {
        result = {Outcome::Failed, 0, "the process that compiled it ended: " + worker.finish()};
      }
      ++finished;
      if (!done(worker.piece(), result)) return;
      give_next(worker);
    }
  }
}

}  // namespace fovea::cli
