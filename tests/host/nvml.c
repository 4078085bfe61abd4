/* NVIDIA's management library as far as host/nvml.py asks it, of a machine with two GPUs; signatures as in nvml.h.
 *
 * -DFAILS: the driver does not answer; -DHANGS: it never comes back; -DCRASHES; -DOLD: a driver without newer functions.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9 };

typedef struct device {
    const char *name, *bus;
    unsigned long long total, reasons;
    unsigned persistence, clock, clock_most, width, generation;
    int has_ecc, has_mig;
} device;

static device devices[] = {
    {"NVIDIA A100-SXM4-40GB", "00000000:07:00.0", 42949672960ULL, 0x4, 1, 1215, 1410, 16, 4, 1, 1},
    {"NVIDIA T4", "00000000:C7:00.0", 16106127360ULL, 0x1, 0, 300, 1590, 8, 1, 1, 0},
};

typedef struct {
    unsigned long long total, free, used;
} memory;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci;

static int is_open;

int nvmlInit_v2(void)
{
#ifdef HANGS
    pause();
#endif
#ifdef CRASHES
    abort();
#endif
#ifdef FAILS
    return DRIVER_NOT_LOADED;
#endif
    is_open = 1;
    return SUCCESS;
}

int nvmlShutdown(void)
{
    is_open = 0;
    return SUCCESS;
}

const char *nvmlErrorString(int status)
{
    return status == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Something Else";
}

static int put_text(char *into, unsigned length, const char *text)
{
    if (!is_open || strlen(text) >= length)
        return INVALID_ARGUMENT;
    strcpy(into, text);
    return SUCCESS;
}

static int put(unsigned *into, unsigned value)
{
    *into = value;
    return is_open ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return put_text(version, length, "535.161.08");
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return put((unsigned *)version, 12020);
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    return put(count, sizeof devices / sizeof *devices);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **found)
{
    *found = &devices[index];
    return is_open ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetName(device *one, char *name, unsigned length)
{
    return put_text(name, length, one->name);
}

int nvmlDeviceGetUUID(device *one, char *uuid, unsigned length)
{
    return put_text(uuid, length, one == devices ? "GPU-5a1c" : "GPU-5b2d");
}

int nvmlDeviceGetMemoryInfo(device *one, memory *found)
{
    *found = (memory){one->total, one->total - 1000, 1000};
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(device *one, pci *found)
{
    memset(found, 0, sizeof *found);
    strcpy(found->bus_id, one->bus);
    return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(device *one, unsigned *mode)
{
    return put(mode, one->persistence);
}

int nvmlDeviceGetEccMode(device *one, unsigned *now, unsigned *later)
{
    if (!one->has_ecc)
        return NOT_SUPPORTED;
    *later = 0;
    return put(now, 1);
}

#ifndef OLD
int nvmlDeviceGetMigMode(device *one, unsigned *now, unsigned *later)
{
    if (!one->has_mig)
        return NOT_SUPPORTED;
    *later = 1;
    return put(now, 0);
}

int nvmlDeviceGetCurrentClocksEventReasons(device *one, unsigned long long *reasons)
{
    *reasons = one->reasons;
    return SUCCESS;
}
#else
int nvmlDeviceGetCurrentClocksThrottleReasons(device *one, unsigned long long *reasons)
{
    *reasons = one->reasons | 0x40;
    return SUCCESS;
}
#endif

int nvmlDeviceGetClockInfo(device *one, int kind, unsigned *clock)
{
    return kind == 1 ? put(clock, one->clock) : INVALID_ARGUMENT;
}

int nvmlDeviceGetMaxClockInfo(device *one, int kind, unsigned *clock)
{
    return kind == 1 ? put(clock, one->clock_most) : INVALID_ARGUMENT;
}

int nvmlDeviceGetCurrPcieLinkWidth(device *one, unsigned *width)
{
    return put(width, one->width);
}

int nvmlDeviceGetMaxPcieLinkWidth(device *one, unsigned *width)
{
    (void)one;
    return put(width, 16);
}

int nvmlDeviceGetCurrPcieLinkGeneration(device *one, unsigned *generation)
{
    return put(generation, one->generation);
}

int nvmlDeviceGetMaxPcieLinkGeneration(device *one, unsigned *generation)
{
    (void)one;
    return put(generation, 4);
}
