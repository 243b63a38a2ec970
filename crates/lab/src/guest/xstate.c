/*
 * ptrace(2) as User Mode Linux 6.1 expects it, on processors whose register state is larger than it knows.
 *
 * That kernel keeps 2,696 bytes of a process's extended registers: all up to AVX-512 and the protection keys. Where the
 * processor has AMX tiles, too, the host's kernel has 11 KiB, and refuses to set less (EFAULT): no guest starts. Here the
 * bytes that the guest's kernel has are laid over the front of what the process has now, and all of it is set. Programs
 * of the guest use no tiles, so nothing is lost.
 *
 * Loaded into the guest's kernel by LD_PRELOAD.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

static long (*the_real_one)(int, ...);

__attribute__((constructor)) static void look_it_up(void)
{
	the_real_one = dlsym(RTLD_NEXT, "ptrace");
}

long ptrace(enum __ptrace_request request, ...)
{
	static __thread char all[64 << 10];
	va_list arguments;
	va_start(arguments, request);
	int pid = va_arg(arguments, int);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);
	if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
		struct iovec *given = data;
		struct iovec whole = { all, sizeof all };
		if (the_real_one(PTRACE_GETREGSET, pid, address, &whole) < 0)
			return -1;
		if (given->iov_len < whole.iov_len) {
			memcpy(all, given->iov_base, given->iov_len);
			return the_real_one(PTRACE_SETREGSET, pid, address, &whole);
		}
	}
	return the_real_one(request, pid, address, data);
}
