from partition import leave_working_directory

if __name__ == "__main__":
    leave_working_directory()  # before anything else is imported
    from gcnmpi.cli.main import main

    main()
