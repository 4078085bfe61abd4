/* The socket to the session, SOCK_SEQPACKET, of lf_message with a memfd each. */
#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILES_MOST 4

static int socket_to_session = -1;

void sm_session_open(int socket_fd) {
    socket_to_session = socket_fd;
}

/* The session keeps what a sampler after us would need. */
void sm_session_give_back(const lf_message *m) {
    send(socket_to_session, m, sizeof *m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void sm_session_tell_used(uint64_t program_ns, uint64_t handler_ns) {
    lf_message m = {LF_MESSAGE_MAGIC, LF_SEND_USED, 0, (uint32_t)(handler_ns / 1000000), program_ns};
    send(socket_to_session, &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The descriptor of a message that has one; of more none is kept. */
static int only_one(struct msghdr *h) {
    int fds[FILES_MOST], count = 0;
    const struct cmsghdr *c = CMSG_FIRSTHDR(h);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), sizeof(int) * (size_t)count);
    }
    for (int i = 0; i < count && count > 1; i++)
        close(fds[i]);
    return count == 1 ? fds[0] : -1;
}

int sm_session_receive(lf_message *m, int *fd) {
    union {
        char room[CMSG_SPACE(sizeof(int) * FILES_MOST)];
        struct cmsghdr align;
    } control;
    struct iovec data = {m, sizeof *m};
    struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    ssize_t bytes = recvmsg(socket_to_session, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    /* Told once where the session has closed and left something of ours unread: what it sent before that is still there. */
    if (bytes < 0 && errno == ECONNRESET)
        bytes = recvmsg(socket_to_session, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes <= 0)
        return bytes < 0 && (errno == EAGAIN || errno == EINTR) ? SM_NOTHING : SM_CLOSED;
    *fd = only_one(&h);
    if (bytes == sizeof *m && m->magic == LF_MESSAGE_MAGIC)
        return SM_RECEIVED;
    if (*fd >= 0)
        close(*fd);
    return SM_OTHER;
}
