/* A stand-in for a container plug-in of Slurm, for tests: srun learns options of the names that Pyxis has, and a task
 * starts in a root file system of its own, unpacked from the image, with the mounts that were asked for.
 *
 * The image is a tar file. In a mount namespace of the task's it is unpacked onto a tmpfs, which is gone with the last
 * process in it. It is not Pyxis: it imports nothing, knows no user namespace, and leaves the environment as it is.
 * plugstack.conf: `required container_steps.so scratch=FOLDER`, FOLDER being an empty one on every node. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of Slurm's documented plug-in interface, as much as is used here: no headers have to be installed. */
typedef struct spank_handle *spank_t;
struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, val;
    int (*cb)(int value, const char *text, int remote);
};
extern int spank_option_register(spank_t spank, struct spank_option *option);
extern void slurm_error(const char *format, ...);

const char plugin_name[] = "container_steps";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION; /* given by who compiles */
const unsigned int spank_plugin_version = 1;

static char *image, *mounts, *workdir, *scratch;

/* Of the node, as Enroot's own configuration has it: names of other nodes resolve inside as they do outside. */
static const char *shared[] = {"/proc", "/sys", "/dev", "/etc/hosts", "/etc/resolv.conf", NULL};

static int keep(char **to, const char *text) {
    free(*to);
    *to = text ? strdup(text) : NULL;
    return 0;
}
static int take_image(int value, const char *text, int remote) { return keep(&image, text); }
static int take_mounts(int value, const char *text, int remote) { return keep(&mounts, text); }
static int take_workdir(int value, const char *text, int remote) { return keep(&workdir, text); }
static int take_nothing(int value, const char *text, int remote) { return 0; }

static struct spank_option options[] = {
    {"container-image", "FILE", "stand-in: tar file of a root file system", 1, 0, take_image},
    {"container-mounts", "SRC:DST[:ro][,...]", "stand-in: bind mounts", 1, 0, take_mounts},
    {"container-workdir", "PATH", "stand-in: working folder inside", 1, 0, take_workdir},
    {"no-container-mount-home", NULL, "stand-in: taken and not needed", 0, 0, take_nothing},
};

int slurm_spank_init(spank_t spank, int count, char **words) {
    for (int i = 0; i < count; i++)
        if (!strncmp(words[i], "scratch=", 8)) keep(&scratch, words[i] + 8);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (spank_option_register(spank, &options[i])) return -1;
    return 0;
}

static int failed(const char *what, const char *path) {
    slurm_error("container_steps: %s %s: %s", what, path, strerror(errno));
    return -1;
}

static int unpack(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/tar", "tar", "-C", scratch, "-xf", image, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || status) return -1;
    return 0;
}

/* The place of a mount, made if it is not there: a folder for a folder, an empty file for a file. */
static void make_place(char *path, int folder) {
    for (char *sign = path + 1; (sign = strchr(sign, '/')); *sign++ = '/') {
        *sign = 0;
        mkdir(path, 0755);
    }
    if (folder) {
        mkdir(path, 0755);
    } else {
        FILE *file = fopen(path, "a");
        if (file) fclose(file);
    }
}

static int bind_in(const char *from, const char *to, int read_only) {
    char place[4096];
    struct stat facts;
    if (stat(from, &facts)) return failed("mount source", from);
    snprintf(place, sizeof place, "%s%s", scratch, to);
    make_place(place, S_ISDIR(facts.st_mode));
    if (mount(from, place, NULL, MS_BIND | MS_REC, NULL)) return failed("mount", place);
    if (read_only && mount(NULL, place, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL)) return failed("remount", place);
    return 0;
}

static int bind_all(void) {
    char *rest = NULL;
    for (char *each = mounts ? strtok_r(mounts, ",", &rest) : NULL; each; each = strtok_r(NULL, ",", &rest)) {
        char *to = strchr(each, ':'), *flags = NULL;
        if (to) *to++ = 0;
        if (to && (flags = strchr(to, ':'))) *flags++ = 0;
        if (bind_in(each, to ? to : each, flags && !strcmp(flags, "ro"))) return -1;
    }
    return 0;
}

int slurm_spank_task_init_privileged(spank_t spank, int count, char **words) {
    struct stat facts;
    if (!image) return 0;
    if (!scratch || stat(image, &facts)) return failed("failed to create container filesystem for image", image);
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return failed("unshare", "/");
    if (mount("none", scratch, "tmpfs", 0, "mode=755")) return failed("tmpfs", scratch);
    if (unpack()) return failed("failed to create container filesystem for image", image);
    for (const char **each = shared; *each; each++)
        if (bind_in(*each, *each, 0)) return -1;
    if (bind_all()) return -1;
    if (chroot(scratch) || chdir("/")) return failed("chroot", scratch);
    return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char **words) {
    if (image && workdir && chdir(workdir)) return failed("working folder", workdir);
    return 0;
}
