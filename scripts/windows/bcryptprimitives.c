// bcryptprimitives.dll for wine 8, which has none: Go's runtime takes its
// random bytes from ProcessPrng, which Windows has had since version 8. This
// one takes them from the older RtlGenRandom, exported as SystemFunction036.
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
	while (length > 0) {
		ULONG n = length > 0x10000000 ? 0x10000000 : (ULONG)length;
		if (!SystemFunction036(buffer, n))
			return FALSE;
		buffer += n;
		length -= n;
	}
	return TRUE;
}
